"""Pure judgments: regret, acceptance, intervals, ceilings."""
