/* What a board says of itself, from files of the kernel: sysfs and procfs. */
#define _GNU_SOURCE
#include "runner.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if defined(__x86_64__)
#include <sys/syscall.h>
#define ARCHITECTURE "x86_64"
#elif defined(__aarch64__)
#define ARCHITECTURE "aarch64"
#else
#define ARCHITECTURE "armv7"
#endif

int first_core;

/* The cores of a list such as 2,3: threads that are started later inherit them. */
void use_cores(const char *list)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const char *at = list; *at;) {
        char *end;
        long core = strtol(at, &end, 10);
        if (end == at || core < 0 || core >= CPU_SETSIZE || (*end && *end != ','))
            fail("no list of cores", list);
        CPU_SET((size_t)core, &set);
        at = *end ? end + 1 : end;
    }
    if (sched_setaffinity(0, sizeof set, &set) != 0)
        fail("the board has no such cores", list);
}

/* Whether this process may use tiles (AMX), for which it asks (Documentation/arch/x86/xstate.rst). */
static int may_use_tiles(void)
{
#if defined(__x86_64__)
    return syscall(158, 0x1023, 18) == 0; /* arch_prctl, ARCH_REQ_XCOMP_PERM, XTILEDATA */
#else
    return 0;
#endif
}

void print_board(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    fprintf(answers, "{\"runner\": 1, \"architecture\": \"%s\", \"cores\": [", ARCHITECTURE);
    const char *comma = "";
    for (int core = CPU_SETSIZE - 1; core >= 0; core--)
        if (CPU_ISSET((size_t)core, &set)) {
            fprintf(answers, "%s%d", comma, core);
            comma = ", ";
            first_core = core;
        }
    fprintf(answers, "], \"tiles\": %s", may_use_tiles() ? "true" : "false");
    print_text("cpuinfo", "/proc/cpuinfo");
    print_text("model", "/proc/device-tree/model");
    print_state();
    fputs("}\n", answers);
}

/* A number that a file begins with, in a base; `none` where there is no such file. */
static double number_in(const char *path, int base, double none)
{
    char name[512], text[64];
    snprintf(name, sizeof name, "%s%s", board_root, path);
    FILE *file = fopen(name, "r");
    if (file == NULL)
        return none;
    double found = none;
    if (fgets(text, sizeof text, file) != NULL)
        found = (double)strtoll(text, NULL, base);
    fclose(file);
    return found;
}

/* Units: kHz, degrees Celsius; `throttled` has the bits of the Raspberry Pi's firmware. */
void print_state(void)
{
    char path[128];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_cur_freq", first_core);
    double khz = number_in(path, 10, -1);
    double heat = number_in("/sys/class/thermal/thermal_zone0/temp", 10, -1);
    double bits = number_in("/sys/devices/platform/soc/soc:firmware/get_throttled", 16, -1);
    if (khz >= 0)
        fprintf(answers, ", \"khz\": %.0f", khz);
    if (heat >= 0)
        fprintf(answers, ", \"celsius\": %.1f", heat / 1000);
    if (bits >= 0)
        fprintf(answers, ", \"throttled\": %.0f", bits);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/cpufreq/scaling_governor", first_core);
    print_text("governor", path);
}

double energy(void)
{
    double found = number_in("/sys/class/powercap/intel-rapl:0/energy_uj", 10, -1);
    return found >= 0 ? found : number_in("/sys/class/hwmon/hwmon0/energy1_input", 10, -1);
}

/* Of this program alone: what getrusage tells begins with the peak of the one that started it. */
long peak_kib(void)
{
    char line[256];
    long found = 0;
    FILE *file = fopen("/proc/self/status", "r");
    if (file == NULL)
        return 0;
    while (found == 0 && fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, "VmHWM:", 6) == 0)
            found = strtol(line + 6, NULL, 10);
    fclose(file);
    return found;
}
