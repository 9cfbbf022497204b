/* A stand-in for libnvidia-ml.so.1 with the real ABI (nvml.h), steered by environment variables that may change while
 * it runs. Sizes are those of an H200. Left out on purpose: MPS lists and everything that the program never asks.
 *
 *   STUB_GPUS        how many GPUs (1)              STUB_USED        bytes in use on GPU 0, on top of nothing
 *   STUB_LOST        index of a lost GPU            STUB_PROCS       "pid:bytes,..." computing on GPU 0 (bytes -1: n/a)
 *   STUB_GRAPHICS    the same, drawing              STUB_OLD         a driver without the newer functions
 *   STUB_DENY        names of functions that answer NOT_SUPPORTED     STUB_INIT   code that nvmlInit gives
 *   STUB_MIG         instances on GPU 0             STUB_REASONS     throttle mask
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int index, instance; } device_t;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory_v2_t;
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned gpu, memory; } utilization_t;
typedef struct { unsigned pid; unsigned long long used; unsigned gi, ci; } process_t;
typedef struct { unsigned version, sensor; int temperature; } temperature_t;

enum { OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15, GONE = 28 };

static device_t gpus[8];
static device_t instances[8];
static int ready;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}

static int denied(const char *function) {
    const char *list = getenv("STUB_DENY");
    size_t n = strlen(function);
    for (const char *at = list; at && (at = strstr(at, function)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ',')) return 1;
    return 0;
}

static int enter(const device_t *d, const char *function) {
    if (!ready) return UNINITIALIZED;
    if (d && number("STUB_LOST", -1) == d->index) return LOST;
    return denied(function) ? NOT_SUPPORTED : OK;
}
#define ENTER(d) do { int rc_ = enter(d, __func__); if (rc_) return rc_; } while (0)

static unsigned long long total_of(const device_t *d) { return d->instance < 0 ? 150754820096ULL : 18790481920ULL; }
static unsigned long long used_of(const device_t *d) {
    return d->index == 0 ? (unsigned long long)number("STUB_USED", 0) : 1073741824ULL * (unsigned)d->index;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    if (number("STUB_INIT", 0)) return (int)number("STUB_INIT", 0);
    for (int i = 0; i < 8; i++) {
        gpus[i] = (device_t){i, -1};
        instances[i] = (device_t){0, i};
    }
    ready = 1;
    return OK;
}
int nvmlShutdown(void) { ready = 0; return OK; }
const char *nvmlErrorString(int code) { (void)code; return "stub error"; }
int nvmlSystemGetDriverVersion(char *text, unsigned length) {
    ENTER(NULL);
    snprintf(text, length, "580.65.06");
    return OK;
}
int nvmlDeviceGetCount_v2(unsigned *count) { ENTER(NULL); *count = (unsigned)number("STUB_GPUS", 1); return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t **d) {
    ENTER(NULL);
    if (number("STUB_LOST", -1) == (long)index) return GONE;
    if (index >= (unsigned)number("STUB_GPUS", 1)) return INVALID;
    *d = &gpus[index];
    return OK;
}
int nvmlDeviceGetName(device_t *d, char *text, unsigned length) {
    ENTER(d);
    snprintf(text, length, d->instance < 0 ? "NVIDIA H200" : "NVIDIA H200 MIG 1g.18gb");
    return OK;
}
int nvmlDeviceGetUUID(device_t *d, char *text, unsigned length) {
    ENTER(d);
    if (d->instance < 0) snprintf(text, length, "GPU-%d0000000-aaaa-bbbb-cccc-dddddddddddd", d->index);
    else snprintf(text, length, "MIG-%d1111111-aaaa-bbbb-cccc-dddddddddddd", d->instance);
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(device_t *d, memory_v2_t *m) {
    ENTER(d);
    if (getenv("STUB_OLD")) return NOT_SUPPORTED;
    if (m->version != (sizeof(memory_v2_t) | 2 << 24)) return INVALID;
    m->total = total_of(d);
    m->reserved = 644939776ULL;
    m->used = used_of(d);
    m->free = m->total - m->reserved - m->used;
    return OK;
}
int nvmlDeviceGetMemoryInfo(device_t *d, memory_t *m) {
    ENTER(d);
    m->total = total_of(d);
    m->used = used_of(d) + 644939776ULL; /* version 1 counts what the driver keeps as used */
    m->free = m->total - m->used;
    return OK;
}
int nvmlDeviceGetUtilizationRates(device_t *d, utilization_t *u) {
    ENTER(d);
    if (d->instance >= 0) return NOT_SUPPORTED;
    *u = (utilization_t){37, 12};
    return OK;
}
int nvmlDeviceGetTemperatureV(device_t *d, temperature_t *t) {
    ENTER(d);
    if (getenv("STUB_OLD") || t->version != (sizeof(temperature_t) | 1 << 24)) return NOT_SUPPORTED;
    t->temperature = 39;
    return OK;
}
int nvmlDeviceGetTemperature(device_t *d, unsigned sensor, unsigned *t) {
    ENTER(d);
    if (sensor) return INVALID;
    *t = 41;
    return OK;
}
int nvmlDeviceGetPowerUsage(device_t *d, unsigned *milliwatts) { ENTER(d); *milliwatts = 79343; return OK; }
int nvmlDeviceGetClockInfo(device_t *d, unsigned kind, unsigned *mhz) {
    ENTER(d);
    *mhz = kind == 1 ? 345 : kind == 2 ? 3201 : 0;
    return OK;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(device_t *d, unsigned long long *mask) {
    ENTER(d);
    *mask = (unsigned long long)number("STUB_REASONS", 1);
    return OK;
}
int nvmlDeviceGetCurrentClocksEventReasons(device_t *d, unsigned long long *mask) {
    ENTER(d);
    if (getenv("STUB_OLD")) return NOT_SUPPORTED;
    *mask = (unsigned long long)number("STUB_REASONS", 1);
    return OK;
}

static int list(const device_t *d, const char *variable, unsigned *count, process_t *out) {
    unsigned n = 0;
    const char *at = d->index == 0 ? getenv(variable) : NULL;
    process_t found[16];
    while (at && *at && n < 16) {
        char *end;
        process_t p = {(unsigned)strtoul(at, &end, 10), 0, d->instance < 0 ? ~0u : (unsigned)d->instance, 0};
        p.used = *end == ':' ? (unsigned long long)strtoll(end + 1, &end, 10) : 0;
        found[n++] = p;
        at = *end == ',' ? end + 1 : end;
    }
    if (n > *count) { *count = n; return TOO_SMALL; }
    *count = n;
    if (n) memcpy(out, found, n * sizeof *out);
    return OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(device_t *d, unsigned *count, process_t *out) {
    ENTER(d);
    return list(d, "STUB_PROCS", count, out);
}
int nvmlDeviceGetGraphicsRunningProcesses_v3(device_t *d, unsigned *count, process_t *out) {
    ENTER(d);
    return list(d, "STUB_GRAPHICS", count, out);
}
int nvmlDeviceGetMigMode(device_t *d, unsigned *current, unsigned *pending) {
    ENTER(d);
    *current = *pending = d->index == 0 && number("STUB_MIG", 0) > 0;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device_t *d, unsigned *count) { ENTER(d); *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device_t *d, unsigned index, device_t **out) {
    ENTER(d);
    if (index >= (unsigned)number("STUB_MIG", 0)) return NOT_FOUND;
    *out = &instances[index];
    return OK;
}
int nvmlDeviceGetGpuInstanceId(device_t *d, unsigned *id) { ENTER(d); *id = 7 + (unsigned)d->instance; return OK; }
int nvmlDeviceGetComputeInstanceId(device_t *d, unsigned *id) { ENTER(d); *id = 0; return OK; }
