/* A driver of two devices, the first with 64 MiB, as strict as the CUDA Driver API says that one may
 * be: memory is taken only with the context current, freed as it was taken, unmapped as it was
 * mapped, and a range goes only when nothing is behind it. Built with OLD it is one of before CUDA
 * 10.2: without virtual memory, pools, and the second versions of functions. Built with NO_POOLS the
 * device has no pools. STAND_IN_FAIL names a function whose nth call fails, as in "cuMemMap 3 700":
 * function, n, code. STAND_IN_LOG names a file to which contexts, streams and events are added. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOTAL ((size_t)64 << 20)
#define PAGE ((size_t)2 << 20)
#define MANY 4096
/* The attribute that says whether there are pools. */
#ifdef NO_POOLS
#define POOLS -1
#else
#define POOLS 115
#endif
enum { OK = 0, INVALID = 1, OUT_OF_MEMORY = 2, NO_CONTEXT = 201 };

static size_t used;
static uint64_t next_address = 0x700000000000;
static int retained[2], current[16], depth;
static struct { uint64_t at; size_t size; int live; } regions[MANY];

static int fails(const char *function)
{
    static int calls;
    char name[64];
    int nth, code;
    const char *wish = getenv("STAND_IN_FAIL");
    if (!wish || sscanf(wish, "%63s %d %d", name, &nth, &code) != 3 || strcmp(name, function))
        return 0;
    return ++calls == nth ? code : 0;
}
#define CALL(function) do { int code = fails(#function); if (code) return code; } while (0)
#define ENTER(function) do { CALL(function); if (!depth) return NO_CONTEXT; } while (0)

static void say(const char *word, int number)
{
    const char *path = getenv("STAND_IN_LOG");
    FILE *file = path ? fopen(path, "a") : NULL;
    if (!file) return;
    fprintf(file, "%s %d\n", word, number);
    fclose(file);
}

/* The devices are 7 and 8, and the last byte of their UUIDs is 15 and 16. */
#define KNOWN(device) ((device) == 7 || (device) == 8)
int cuInit(unsigned flags) { CALL(cuInit); return flags ? INVALID : OK; }
int cuDeviceGetCount(int *count) { *count = 2; return OK; }
int cuDeviceGet(int *device, int ordinal) { *device = 7 + ordinal; return ordinal > 1 ? INVALID : OK; }
int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++) uuid[i] = i < 15 ? i : device + 8;
    return KNOWN(device) ? OK : INVALID;
}
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (device == 8) CALL(cuDevicePrimaryCtxRetain);
    if (!KNOWN(device)) return INVALID;
    *context = &retained[device - 7];
    say("retain", device);
    retained[device - 7]++;
    return OK;
}
int cuDevicePrimaryCtxRelease(int device)
{
    if (!KNOWN(device) || !retained[device - 7]) return INVALID;
    say("release", device);
    /* What was not given back is a leak that nobody else would see. */
    if (--retained[device - 7] == 0 && device == 7 && used) abort();
    return OK;
}
static int place(void *context)
{
    int device = context == &retained[0] ? 0 : context == &retained[1] ? 1 : -1;
    return device >= 0 && retained[device] ? device : -1;
}
int cuCtxPushCurrent_v2(void *context)
{
    if (place(context) < 0 || depth == 16) return INVALID;
    current[depth++] = place(context);
    return OK;
}
int cuCtxPopCurrent_v2(void **context)
{
    if (!depth) return NO_CONTEXT;
    *context = &retained[current[--depth]];
    return OK;
}
int cuMemGetInfo_v2(size_t *free, size_t *total)
{
    ENTER(cuMemGetInfo_v2);
    *total = TOTAL;
    *free = TOTAL - used;
    return OK;
}
int cuMemAlloc_v2(uint64_t *address, size_t size)
{
    ENTER(cuMemAlloc_v2);
    if (!size) return INVALID;
    if (size > TOTAL - used) return OUT_OF_MEMORY;
    for (int i = 0; i < MANY; i++) {
        if (regions[i].live) continue;
        regions[i].at = *address = next_address;
        regions[i].size = size;
        regions[i].live = 1;
        next_address += (size + PAGE - 1) / PAGE * PAGE;
        used += size;
        return OK;
    }
    return OUT_OF_MEMORY;
}
int cuMemFree_v2(uint64_t address)
{
    ENTER(cuMemFree_v2);
    for (int i = 0; i < MANY; i++) {
        if (!regions[i].live || regions[i].at != address) continue;
        regions[i].live = 0;
        used -= regions[i].size;
        return OK;
    }
    return INVALID;
}

#ifndef OLD
static struct { uint64_t at; size_t size; int live; } ranges[MANY];
static struct { uint64_t at; uint64_t handle; } pages[MANY];
static struct { uint64_t handle; int named, mapped; } memory[MANY];

struct properties {
    int kind, handles, location, device;
    void *windows;
    unsigned char compression, remote;
    unsigned short usage;
    unsigned char reserved[4];
};
struct access { int location, device, flags; };

static int sound(const struct properties *p)
{
    static const unsigned char none[4];
    return p->kind == 1 && !p->handles && p->location == 1 && p->device == 7 && !p->windows
        && !p->compression && !p->remote && !p->usage && !memcmp(p->reserved, none, 4);
}
static int in_range(uint64_t at, size_t size)
{
    for (int i = 0; i < MANY; i++)
        if (ranges[i].live && at >= ranges[i].at && at + size <= ranges[i].at + ranges[i].size)
            return 1;
    return 0;
}
static int page_at(uint64_t at)
{
    for (int i = 0; i < MANY; i++)
        if (pages[i].at == at) return i;
    return -1;
}
static int memory_of(uint64_t handle)
{
    for (int i = 0; i < MANY; i++)
        if (handle && memory[i].handle == handle) return i;
    return -1;
}
static void settle(int m)
{
    if (memory[m].named || memory[m].mapped) return;
    memory[m].handle = 0;
    used -= PAGE;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    /* Compute capability 7.0: attributes 75 and 76. */
    *value = attribute == 75 ? 7 : attribute == 102 || attribute == POOLS;
    return KNOWN(device) ? OK : INVALID;
}
int cuDeviceGetUuid_v2(unsigned char *uuid, int device) { return cuDeviceGetUuid(uuid, device); }
int cuDevicePrimaryCtxRelease_v2(int device) { return cuDevicePrimaryCtxRelease(device); }
int cuMemGetAllocationGranularity(size_t *size, const struct properties *p, int option)
{
    *size = PAGE;
    return sound(p) && !option ? OK : INVALID;
}
int cuMemAddressReserve(uint64_t *at, size_t size, size_t alignment, uint64_t hint,
                        unsigned long long flags)
{
    ENTER(cuMemAddressReserve);
    if (!size || size % PAGE || alignment != PAGE || hint || flags) return INVALID;
    for (int i = 0; i < MANY; i++) {
        if (ranges[i].live) continue;
        ranges[i].at = *at = next_address;
        ranges[i].size = size;
        ranges[i].live = 1;
        next_address += size;
        return OK;
    }
    return OUT_OF_MEMORY;
}
int cuMemAddressFree(uint64_t at, size_t size)
{
    ENTER(cuMemAddressFree);
    for (int i = 0; i < MANY; i++)
        if (pages[i].at >= at && pages[i].at < at + size) return INVALID;
    for (int i = 0; i < MANY; i++) {
        if (!ranges[i].live || ranges[i].at != at || ranges[i].size != size) continue;
        ranges[i].live = 0;
        return OK;
    }
    return INVALID;
}
int cuMemCreate(uint64_t *handle, size_t size, const struct properties *p,
                unsigned long long flags)
{
    static uint64_t last;
    ENTER(cuMemCreate);
    if (size != PAGE || !sound(p) || flags) return INVALID;
    if (size > TOTAL - used) return OUT_OF_MEMORY;
    for (int i = 0; i < MANY; i++) {
        if (memory[i].handle) continue;
        memory[i].handle = *handle = ++last;
        memory[i].named = 1;
        memory[i].mapped = 0;
        used += PAGE;
        return OK;
    }
    return OUT_OF_MEMORY;
}
int cuMemRelease(uint64_t handle)
{
    ENTER(cuMemRelease);
    int m = memory_of(handle);
    if (m < 0 || !memory[m].named) return INVALID;
    memory[m].named = 0;
    settle(m);
    return OK;
}
int cuMemMap(uint64_t at, size_t size, size_t offset, uint64_t handle, unsigned long long flags)
{
    ENTER(cuMemMap);
    int m = memory_of(handle), place = page_at(0);
    if (m < 0 || place < 0 || size != PAGE || at % PAGE || offset || flags) return INVALID;
    if (!in_range(at, size) || page_at(at) >= 0) return INVALID;
    pages[place].at = at;
    pages[place].handle = handle;
    memory[m].mapped++;
    return OK;
}
int cuMemSetAccess(uint64_t at, size_t size, const struct access *access, size_t count)
{
    ENTER(cuMemSetAccess);
    if (count != 1 || access->location != 1 || access->device != 7 || access->flags != 3)
        return INVALID;
    for (uint64_t page = at; page < at + size; page += PAGE)
        if (page_at(page) < 0) return INVALID;
    return OK;
}
int cuMemUnmap(uint64_t at, size_t size)
{
    ENTER(cuMemUnmap);
    for (uint64_t page = at; page < at + size; page += PAGE)
        if (page_at(page) < 0) return INVALID;
    for (uint64_t page = at; page < at + size; page += PAGE) {
        int p = page_at(page), m = memory_of(pages[p].handle);
        pages[p].at = 0;
        memory[m].mapped--;
        settle(m);
    }
    return OK;
}

/* Streams and events do their work at once, and stream-ordered memory behaves like any other. */
static int streams, events;
int cuCtxGetCurrent(void **context)
{
    *context = depth ? &retained[current[depth - 1]] : NULL;
    return OK;
}
int cuCtxSetCurrent(void *context)
{
    if (place(context) < 0) return INVALID;
    if (!depth) depth = 1;
    current[depth - 1] = place(context);
    return OK;
}
int cuCtxSynchronize(void) { return depth ? OK : NO_CONTEXT; }
int cuStreamCreate(void **stream, unsigned flags)
{
    ENTER(cuStreamCreate);
    *stream = &streams;
    say("stream", ++streams);
    return flags <= 1 ? OK : INVALID;
}
int cuStreamDestroy_v2(void *stream)
{
    if (stream != &streams || !streams) return INVALID;
    say("no stream", streams--);
    return OK;
}
int cuStreamSynchronize(void *stream) { CALL(cuStreamSynchronize); return stream == &streams ? OK : INVALID; }
int cuStreamWaitEvent(void *stream, void *event, unsigned flags)
{
    return stream == &streams && event == &events && !flags ? OK : INVALID;
}
int cuEventCreate(void **event, unsigned flags)
{
    *event = &events;
    say("event", ++events);
    return flags <= 3 ? OK : INVALID;
}
int cuEventDestroy_v2(void *event)
{
    if (event != &events || !events) return INVALID;
    say("no event", events--);
    return OK;
}
int cuEventRecord(void *event, void *stream)
{
    return event == &events && stream == &streams ? OK : INVALID;
}
int cuEventQuery(void *event) { return event == &events ? OK : INVALID; }
int cuEventSynchronize(void *event) { return event == &events ? OK : INVALID; }
int cuEventElapsedTime(float *milliseconds, void *start, void *end)
{
    *milliseconds = 0.5;
    return start == &events && end == &events ? OK : INVALID;
}
int cuMemAllocAsync(uint64_t *address, size_t size, void *stream)
{
    ENTER(cuMemAllocAsync);
    return stream == &streams ? cuMemAlloc_v2(address, size) : INVALID;
}
int cuMemFreeAsync(uint64_t address, void *stream)
{
    ENTER(cuMemFreeAsync);
    return stream == &streams ? cuMemFree_v2(address) : INVALID;
}
int cuMemsetD8Async(uint64_t address, unsigned char value, size_t size, void *stream)
{
    ENTER(cuMemsetD8Async);
    return address && size && !value && stream == &streams ? OK : INVALID;
}

/* A module is its text, and a function the place of its entry in it. A launch is logged, not run. */
int cuModuleLoadData(void **module, const void *image)
{
    ENTER(cuModuleLoadData);
    if (!strstr(image, ".target sm_70")) return INVALID;
    *module = malloc(strlen(image) + 1);
    strcpy(*module, image);
    return OK;
}
int cuModuleGetFunction(void **function, void *module, const char *name)
{
    char entry[64];
    ENTER(cuModuleGetFunction);
    snprintf(entry, sizeof entry, ".entry %s(", name);
    *function = strstr(module, entry);
    return *function ? OK : INVALID;
}
int cuModuleUnload(void *module) { free(module); return OK; }
int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared, void *stream,
                   void **arguments, void **extra)
{
    char word[96];
    ENTER(cuLaunchKernel);
    if (stream != &streams || shared || extra || !arguments || grid_z != 1 || block_z != 1)
        return INVALID;
    snprintf(word, sizeof word, "%.*s %u×%u blocks of %u×%u",
             (int)strcspn((char *)function + 7, "("), (char *)function + 7, grid_x, grid_y, block_x,
             block_y);
    say(word, *(uint64_t *)arguments[0] != 0);
    return OK;
}
#endif
