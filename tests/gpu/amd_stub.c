/* A stand-in for libamd_smi.so with the real ABI (amdsmi.h of ROCm 7.0), steered by environment variables that may
 * change while it runs. It has the functions below; a test generates all the others, which answer NOT_SUPPORTED.
 *
 *   STUB_KIND    mi300 (violation status, hotspot and current power) or radeon (gpu_metrics bits, edge, average power)
 *   STUB_GPUS    how many GPUs (1)       STUB_USED   bytes in use on GPU 0     STUB_PROCS   "pid:bytes:name,..." there
 *   STUB_LOST    index of a lost GPU     STUB_DENY   functions that answer NOT_SUPPORTED     STUB_INIT   code of init
 *   STUB_ACTIVE  violations in force: letters p(rochot) P(pt) s(ocket) v(r) h(bm)      STUB_BITS   throttle bits
 *   STUB_NOISE   text that init writes to both standard streams
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVAL = 1, NOT_SUPPORTED = 2, NOT_FOUND = 31, NOT_INIT = 32 };

typedef struct { int index; } device_t;
typedef struct { uint64_t gtt, cpu, vram; uint32_t reserved[10]; } process_memory_t;
typedef struct { uint64_t gfx, enc; uint32_t reserved[12]; } process_engines_t;
typedef struct {
    char name[256];
    uint32_t pid;
    uint64_t mem;
    process_engines_t engines;
    process_memory_t memory;
    char container[256];
    uint32_t cu_occupancy;
    uint32_t reserved[11];
} process_t;
typedef struct { uint32_t gfx, umc, mm, reserved[13]; } activity_t;
typedef struct {
    uint64_t socket;
    uint32_t current, average;
    uint64_t gfx_mv, soc_mv, mem_mv;
    uint32_t limit;
    uint64_t reserved[18];
} power_t;
typedef struct { uint32_t clk, min, max; uint8_t locked, deep_sleep; uint32_t reserved[4]; } clock_info_t;
typedef struct {
    char market_name[256];
    uint32_t vendor_id;
    char vendor_name[256];
    uint32_t subvendor_id;
    uint64_t device_id;
    uint32_t rev_id;
    char asic_serial[256];
    uint32_t oam_id, compute_units;
    uint64_t target;
    uint32_t subsystem_id, reserved[21];
} asic_t;
typedef struct { uint32_t drm_render, drm_card, hsa_id, hip_id; char hip_uuid[256]; } enumeration_t;
typedef struct { char version[256], date[256], name[256]; } driver_t;
typedef struct {
    uint64_t reference, violation, acc[7], per[6];
    uint8_t prochot, ppt, socket, vr, hbm, below_host_limit;
    uint64_t acc2[4][64], per2[4][64];
    uint8_t active2[4][64];
    uint64_t reserved[3][64];
} violation_t;
typedef struct { uint16_t size; uint8_t format, content; } header_t;
typedef struct {
    header_t header;
    uint16_t temperatures[6], activities[3], socket_power;
    uint64_t energy, system_clock;
    uint16_t average_clocks[7], current_clocks[7];
    uint32_t throttle_status;
    uint16_t fan, link_width, link_speed;
    uint32_t activity_acc[2];
    uint16_t hbm[4];
    uint64_t firmware;
    uint16_t voltages[3];
    uint64_t indep_throttle_status;
    /* what follows is longer in the real struct and not written here */
} metrics_head_t;

static device_t gpus[8];
static int ready;

static long number(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, NULL, 0) : otherwise;
}
static int radeon(void) { const char *kind = getenv("STUB_KIND"); return kind && !strcmp(kind, "radeon"); }
static int denied(const char *function) {
    const char *list = getenv("STUB_DENY");
    size_t n = strlen(function);
    for (const char *at = list; at && (at = strstr(at, function)); at += n)
        if ((at == list || at[-1] == ',') && (at[n] == 0 || at[n] == ',')) return 1;
    return 0;
}
static int enter(const device_t *d, const char *function) {
    if (!ready) return NOT_INIT;
    if (d && number("STUB_LOST", -1) == d->index) return NOT_FOUND;
    return denied(function) ? NOT_SUPPORTED : OK;
}
#define ENTER(d) do { int rc_ = enter(d, __func__); if (rc_) return rc_; } while (0)

static int count(void) {
    int all = (int)number("STUB_GPUS", 1), lost = (int)number("STUB_LOST", -1);
    return lost == all - 1 ? lost : all; /* a lost last GPU is no longer listed */
}

int amdsmi_init(uint64_t flags) {
    const char *noise = getenv("STUB_NOISE");
    if (noise && (write(1, noise, strlen(noise)) < 0 || write(2, noise, strlen(noise)) < 0)) return INVAL;
    if (flags != 2) return INVAL;
    if (number("STUB_INIT", 0)) return (int)number("STUB_INIT", 0);
    for (int i = 0; i < 8; i++) gpus[i].index = i;
    ready = 1;
    return OK;
}
int amdsmi_shut_down(void) { ready = 0; return OK; }
int amdsmi_get_socket_handles(uint32_t *n, void **out) {
    ENTER(NULL);
    *n = (uint32_t)count();
    for (uint32_t i = 0; out && i < *n; i++) out[i] = &gpus[i];
    return OK;
}
int amdsmi_get_processor_handles(void *socket, uint32_t *n, void **out) {
    ENTER(NULL);
    *n = 1;
    if (out) out[0] = socket;
    return OK;
}
int amdsmi_get_gpu_asic_info(device_t *d, asic_t *a) {
    ENTER(d);
    memset(a, 0, sizeof *a);
    strcpy(a->market_name, radeon() ? "AMD Radeon RX 7900 XTX" : "AMD Instinct MI300X");
    a->vendor_id = 0x1002;
    a->device_id = radeon() ? 0x744c : 0x74a1;
    strcpy(a->vendor_name, "Advanced Micro Devices, Inc. [AMD/ATI]");
    strcpy(a->asic_serial, "1f2e3d4c");
    a->target = radeon() ? 0x1100 : 0x942;
    return OK;
}
int amdsmi_get_gpu_device_uuid(device_t *d, uint32_t *n, char *text) {
    ENTER(d);
    snprintf(text, *n, "%dff74a1-0000-1000-80d5-be5a1abcdef0", d->index);
    return OK;
}
int amdsmi_get_gpu_enumeration_info(device_t *d, enumeration_t *e) {
    ENTER(d);
    memset(e, 0, sizeof *e);
    e->hip_id = (uint32_t)(number("STUB_GPUS", 1) - 1 - d->index); /* HIP counts the other way round here */
    snprintf(e->hip_uuid, sizeof e->hip_uuid, "GPU-%d2d8dc97f3fa2f1", d->index);
    return OK;
}
int amdsmi_get_gpu_driver_info(device_t *d, driver_t *i) {
    ENTER(d);
    memset(i, 0, sizeof *i);
    strcpy(i->version, "6.14.14");
    strcpy(i->name, "amdgpu");
    return OK;
}
static uint64_t total_of(void) { return radeon() ? 25753026560ULL : 206141652992ULL; }
static uint64_t used_of(const device_t *d) {
    return d->index == 0 ? (uint64_t)number("STUB_USED", 285212672) : (uint64_t)d->index << 30;
}
int amdsmi_get_gpu_memory_total(device_t *d, uint32_t kind, uint64_t *bytes) {
    ENTER(d);
    if (kind != 0) return INVAL;
    *bytes = total_of();
    return OK;
}
int amdsmi_get_gpu_memory_usage(device_t *d, uint32_t kind, uint64_t *bytes) {
    ENTER(d);
    if (kind != 0) return INVAL;
    *bytes = used_of(d);
    return OK;
}
int amdsmi_get_gpu_vram_usage(device_t *d, uint32_t *mib) {
    ENTER(d);
    mib[0] = (uint32_t)(total_of() >> 20);
    mib[1] = (uint32_t)(used_of(d) >> 20);
    return OK;
}
int amdsmi_get_gpu_process_list(device_t *d, uint32_t *n, process_t *out) {
    ENTER(d);
    uint32_t found = 0;
    const char *at = d->index == 0 ? getenv("STUB_PROCS") : NULL;
    while (at && *at && found < *n) {
        char *end;
        process_t p;
        memset(&p, 0, sizeof p);
        p.pid = (uint32_t)strtoul(at, &end, 10);
        p.memory.vram = strtoull(end + 1, &end, 10);
        p.mem = p.memory.vram + 4096; /* with the pages in main memory */
        size_t length = *end == ':' ? strcspn(end + 1, ",") : 0;
        if (length) { memcpy(p.name, end + 1, length); end += length + 1; }
        out[found++] = p;
        at = *end == ',' ? end + 1 : end;
    }
    *n = found;
    return OK;
}
int amdsmi_get_gpu_activity(device_t *d, activity_t *a) { ENTER(d); *a = (activity_t){63, 21, 0xFFFF, {0}}; return OK; }
int amdsmi_get_temp_metric(device_t *d, uint32_t sensor, uint32_t metric, int64_t *degrees) {
    ENTER(d);
    if (metric != 0) return INVAL;
    if (sensor != (radeon() ? 0u : 1u)) return NOT_SUPPORTED;
    *degrees = radeon() ? 54 : 47;
    return OK;
}
int amdsmi_get_power_info(device_t *d, power_t *p) {
    ENTER(d);
    memset(p, 0, sizeof *p);
    p->socket = radeon() ? 303 : 412;
    p->current = radeon() ? 0xFFFF : 412;
    p->average = radeon() ? 303 : 0xFFFF;
    return OK;
}
int amdsmi_get_clock_info(device_t *d, uint32_t kind, clock_info_t *c) {
    ENTER(d);
    memset(c, 0, sizeof *c);
    if (kind == 0) c->clk = 2104;
    else if (kind == 4) c->clk = 1300;
    else return NOT_SUPPORTED;
    return OK;
}
int amdsmi_get_violation_status(device_t *d, violation_t *v) {
    ENTER(d);
    if (radeon()) return NOT_SUPPORTED;
    const char *active = getenv("STUB_ACTIVE");
    memset(v, 0, sizeof *v);
    v->prochot = active && strchr(active, 'p');
    v->ppt = active && strchr(active, 'P');
    v->socket = active && strchr(active, 's');
    v->vr = active && strchr(active, 'v');
    v->hbm = active && strchr(active, 'h');
    v->below_host_limit = 0xFF; /* this one is not told */
    return OK;
}
int amdsmi_get_gpu_metrics_info(device_t *d, metrics_head_t *m) {
    ENTER(d);
    m->indep_throttle_status = radeon() ? (uint64_t)strtoull(getenv("STUB_BITS") ? getenv("STUB_BITS") : "0", NULL, 0)
                                        : ~0ULL;
    return OK;
}
