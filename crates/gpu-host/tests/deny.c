/* Runs a program under a seccomp filter: deny RULE... -- PROGRAM [ARGUMENT...]
 *
 * A rule is CALL:ERRNO, or CALL:ERRNO:INDEX:VALUE for calls with this value (32 bits) of the
 * argument with this index. The call then fails with the error, or ends the program if that is -1.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, field)
#define UNLESS(value, skipped) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skipped)

int main(int count, char **arguments) {
    struct sock_filter filter[128];
    unsigned length = 0;
    int at = 1;
    for (; at < count && strcmp(arguments[at], "--") && length < 120; at++) {
        int call, error, index, value;
        int read = sscanf(arguments[at], "%d:%d:%d:%d", &call, &error, &index, &value);
        if (read != 2 && read != 4) return 7;
        filter[length++] = (struct sock_filter)LOAD(offsetof(struct seccomp_data, nr));
        filter[length++] = (struct sock_filter)UNLESS(call, read == 4 ? 3 : 1);
        if (read == 4) {
            unsigned argument = offsetof(struct seccomp_data, args) + 8 * index;
            filter[length++] = (struct sock_filter)LOAD(argument);
            filter[length++] = (struct sock_filter)UNLESS(value, 1);
        }
        unsigned result = error < 0 ? SECCOMP_RET_KILL_PROCESS : SECCOMP_RET_ERRNO | error;
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, result);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = {length, filter};
    if (at + 1 >= count || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) return 8;
    if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) return 8;
    execvp(arguments[at + 1], arguments + at + 1);
    return 9;
}
