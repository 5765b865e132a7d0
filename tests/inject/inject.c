/* Preloaded into all processes of a run: counts calls by job, program and function, and lets chosen ones fail.

   INJECT_TABLE names a file of zeros that all of them map; a row each has the counts of a program in a job. INJECT_POINTS
   names a file with a line for each call that fails: "<job> <program> <function> <number> <errno>". */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { OPEN, WRITE, RENAME, FSYNC, FORK, CONNECT, RECV, FUNCTIONS };
static const char *const NAMES[FUNCTIONS] = {"open", "write", "rename", "fsync", "fork", "connect", "recv"};
enum { ROWS = 512, KEY = 232, POINTS = 8 };

struct row {
    char key[KEY];
    unsigned counts[FUNCTIONS];
    unsigned failed[FUNCTIONS]; /* the number of the call that failed last */
};
static struct row *row;
static struct { int function, error; unsigned number; } points[POINTS];
static int chosen;

#define REAL(name, ...) ((__typeof__(name) *)dlsym(RTLD_NEXT, #name))(__VA_ARGS__)

/* Count a call, and return whether it fails. */
static int fails(int function) {
    if (!row) return 0;
    unsigned number = __atomic_add_fetch(&row->counts[function], 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < chosen; i++)
        if (points[i].function == function && points[i].number == number) {
            row->failed[function] = number;
            errno = points[i].error;
            return 1;
        }
    return 0;
}

/* Write "<job> <program>" of this process to `key`. A step or a rule's program names the job, which others inherit. */
static void identify(char *key) {
    char line[8192], *program = "", *job = getenv("INJECT_JOB"), *out = "", *study = "";
    int file = REAL(open, "/proc/self/cmdline", O_RDONLY);
    ssize_t size = file < 0 ? 0 : read(file, line, sizeof line - 1);
    if (file >= 0) close(file);
    line[size > 0 ? size : 0] = 0;
    int python = 0, number = 0, module = 0, ours = 0;
    for (char *word = line; word < line + size; word += strlen(word) + 1, number++) {
        char *name = strrchr(word, '/') ? strrchr(word, '/') + 1 : word;
        char *next = word + strlen(word) + 1;
        if (number == 0) program = name, python = strncmp(name, "python", 6) == 0;
        else if (python && !strncmp(word, "scripts/", 8) && !module) program = strcmp(name, "module.py") ? name : next, module = ours = 1;
        else if (python && !strcmp(word, "-c") && !module) program = "spawned", module = 1;
        else if (python && number == 1 && *word != '-') program = name, module = 1;
        if (!*out && !strcmp(word, "--out")) out = next;
        if (!*study && !strcmp(word, "--study")) study = next;
    }
    if (!job && ours && strcmp(program, "sbench.cli")) {
        job = *out ? out : study;
        setenv("INJECT_JOB", job, 1);
    }
    snprintf(key, KEY, "%.180s %.50s", job && *job ? job : "-", program);
    for (char *sign = key; *sign; sign++)
        if (*sign == '\n') *sign = '_';
}

__attribute__((constructor)) static void begin(void) {
    const char *table = getenv("INJECT_TABLE"), *list = getenv("INJECT_POINTS");
    char key[KEY], name[KEY], text[512];
    int file = table ? REAL(open, table, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return;
    struct row *rows = mmap(NULL, ROWS * sizeof *rows, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    identify(key);
    flock(file, LOCK_EX);
    struct row *mine = rows;
    while (mine < rows + ROWS - 1 && *mine->key && strcmp(mine->key, key)) mine++;
    strcpy(mine->key, key);
    flock(file, LOCK_UN); /* The mapping keeps the file, and so its lock. */
    close(file);
    FILE *lines = list ? fopen(list, "re") : NULL;
    while (lines && fgets(text, sizeof text, lines) && chosen < POINTS) {
        char *last = strrchr(text, ' ');
        if (!last) continue;
        points[chosen].error = atoi(last);
        for (int i = 0; i < 2; i++) { *last = 0; last = strrchr(text, ' '); if (i == 0) points[chosen].number = atoi(last + 1); }
        snprintf(name, sizeof name, "%s", last + 1);
        *last = 0;
        for (int i = 0; i < FUNCTIONS; i++)
            if (!strcmp(NAMES[i], name) && !strcmp(text, key)) points[chosen++].function = i;
    }
    if (lines) fclose(lines);
    row = mine;
}

/* Files of the run: what is written anywhere but to devices, and what is read of results and reports. */
static int of_run(const char *path, int flags) {
    if (!strncmp(path, "/dev/", 5) || !strncmp(path, "/proc/", 6) || !strncmp(path, "/sys/", 5)) return 0;
    return flags & (O_WRONLY | O_RDWR | O_CREAT) || strstr(path, "results/") || strstr(path, "reports/");
}

static int is_of(int file, mode_t kind) {
    struct stat state;
    int before = errno, same = !fstat(file, &state) && (state.st_mode & S_IFMT) == kind;
    errno = before;
    return same;
}

#define MODE(flags) \
    va_list list; \
    va_start(list, flags); \
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0; \
    va_end(list);

#define OPENS(name) \
    int name(const char *path, int flags, ...) { \
        MODE(flags) \
        return of_run(path, flags) && fails(OPEN) ? -1 : REAL(name, path, flags, mode); \
    }
OPENS(open)
OPENS(open64)

#define OPENS_AT(name) \
    int name(int at, const char *path, int flags, ...) { \
        MODE(flags) \
        return of_run(path, flags) && fails(OPEN) ? -1 : REAL(name, at, path, flags, mode); \
    }
OPENS_AT(openat)
OPENS_AT(openat64)

ssize_t write(int file, const void *bytes, size_t size) {
    return is_of(file, S_IFREG) && fails(WRITE) ? -1 : REAL(write, file, bytes, size);
}
ssize_t pwrite(int file, const void *bytes, size_t size, off_t at) {
    return fails(WRITE) ? -1 : REAL(pwrite, file, bytes, size, at);
}
ssize_t pwrite64(int file, const void *bytes, size_t size, off_t at) {
    return fails(WRITE) ? -1 : REAL(pwrite64, file, bytes, size, at);
}
int rename(const char *from, const char *to) { return fails(RENAME) ? -1 : REAL(rename, from, to); }
int renameat(int at, const char *from, int at_to, const char *to) {
    return fails(RENAME) ? -1 : REAL(renameat, at, from, at_to, to);
}
int fsync(int file) { return fails(FSYNC) ? -1 : REAL(fsync, file); }
int fdatasync(int file) { return fails(FSYNC) ? -1 : REAL(fdatasync, file); }
pid_t fork(void) { return fails(FORK) ? -1 : REAL(fork); }
/* A child of vfork may not return from here; one of fork may. */
pid_t vfork(void) { return fork(); }
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
                char *const words[], char *const env[]) {
    return fails(FORK) ? errno : REAL(posix_spawn, pid, path, actions, how, words, env);
}
int connect(int file, const struct sockaddr *to, socklen_t size) {
    return fails(CONNECT) ? -1 : REAL(connect, file, to, size);
}
ssize_t recv(int file, void *bytes, size_t size, int flags) {
    return fails(RECV) ? -1 : REAL(recv, file, bytes, size, flags);
}
ssize_t recvfrom(int file, void *bytes, size_t size, int flags, struct sockaddr *from, socklen_t *length) {
    return fails(RECV) ? -1 : REAL(recvfrom, file, bytes, size, flags, from, length);
}
ssize_t recvmsg(int file, struct msghdr *message, int flags) {
    return fails(RECV) ? -1 : REAL(recvmsg, file, message, flags);
}
ssize_t read(int file, void *bytes, size_t size) {
    return row && is_of(file, S_IFSOCK) && fails(RECV) ? -1 : REAL(read, file, bytes, size);
}

/* What measures is started without LD_PRELOAD, on purpose; here it is given back what it needs to be injected into. */
int execve(const char *path, char *const words[], char *const env[]) {
    static const char *const needed[] = {"LD_PRELOAD", "INJECT_TABLE", "INJECT_POINTS", "INJECT_JOB"};
    int count = 0, lacking = 0;
    while (env && env[count]) count++;
    char *given[count + 5], text[4][512];
    memcpy(given, env, count * sizeof *env);
    for (int i = 0; i < 4; i++) {
        size_t size = strlen(needed[i]);
        int there = 0;
        for (int k = 0; k < count; k++) there |= !strncmp(env[k], needed[i], size) && env[k][size] == '=';
        if (there || !getenv(needed[i])) continue;
        snprintf(text[i], sizeof text[i], "%s=%s", needed[i], getenv(needed[i]));
        given[count + lacking++] = text[i];
    }
    given[count + lacking] = NULL;
    return REAL(execve, path, words, given);
}
