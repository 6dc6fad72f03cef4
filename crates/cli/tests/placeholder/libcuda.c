/* A driver of two devices, as far as a context on each needs one. What is made of the contexts is
 * added to the file that STAND_IN_SAYS names; STAND_IN_REFUSES is the device of which none is had. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int say(const char *word, int device)
{
    FILE *file = fopen(getenv("STAND_IN_SAYS"), "a");
    fprintf(file, "%s %d by %d\n", word, device, (int)getpid());
    return fclose(file);
}
int cuInit(unsigned flags) { return flags; }
int cuDeviceGetCount(int *count) { *count = 2; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = 40 + ordinal; return 0; }
int cuDeviceGetUuid(unsigned char *uuid, int device)
{
    for (int i = 0; i < 16; i++) uuid[i] = i < 15 ? i : device;
    return 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device)
{
    static int place;
    const char *refused = getenv("STAND_IN_REFUSES");
    *context = &place;
    return refused && atoi(refused) == device ? 2 : say("context on", device);
}
int cuDevicePrimaryCtxRelease(int device) { return say("none on", device); }
