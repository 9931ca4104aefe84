/* SPDX-License-Identifier: BSD-3-Clause */
#include "base/run.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

void (*soda_run_local_hook)(int step);

__attribute__((format(printf, 3, 4))) static int refuse(struct soda_run_refusal *why, int status,
							const char *fmt, ...)
{
	va_list ap;

	why->status = status;
	va_start(ap, fmt);
	vsnprintf(why->text, sizeof(why->text), fmt, ap);
	va_end(ap);
	return -1;
}

static bool runnable(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && S_ISREG(st.st_mode) && access(path, X_OK) == 0;
}

static int find(const char *name, char *path, size_t bytes, struct soda_run_refusal *why)
{
	const char *dirs = getenv("PATH");

	if (!dirs) /* as execvp(3) */
		dirs = "/bin:/usr/bin";
	if (strchr(name, '/')) {
		snprintf(path, bytes, "%s", name);
		if (runnable(path))
			return 0;
		return refuse(why, access(path, F_OK) ? 127 : 126, "%.900s: %s", name,
			      access(path, X_OK) ? strerror(errno) : "not a program");
	}
	while (*dirs) {
		int n = (int)strcspn(dirs, ":");

		snprintf(path, bytes, "%.*s%s%s", n, dirs, n ? "/" : "", name);
		if (runnable(path))
			return 0;
		dirs += n + (dirs[n] == ':');
	}
	return refuse(why, 127, "%.900s: not found in PATH", name);
}

/* The dynamic loader ignores LD_PRELOAD for a program that gains privileges when it is started. */
static int check_privilege(const char *path, int fd, struct soda_run_refusal *why)
{
	struct stat st;

	if (fstat(fd, &st))
		return refuse(why, 126, "%.900s: %s", path, strerror(errno));
	if ((st.st_mode & S_ISUID && st.st_uid != geteuid()) ||
	    (st.st_mode & S_ISGID && st.st_gid != getegid()))
		return refuse(
			why, 126,
			"%.900s is set-user-id or set-group-id: the system loads no library into "
			"it. Run a copy without that bit, or as the user that it belongs to",
			path);
	if (geteuid() != 0 && fgetxattr(fd, "security.capability", NULL, 0) > 0)
		return refuse(
			why, 126,
			"%.900s has file capabilities: the system loads no library into it. Run a "
			"copy without them",
			path);
	return 0;
}

static bool has_interpreter(int fd, const Elf64_Ehdr *e)
{
	Elf64_Phdr p;

	for (int i = 0; i < e->e_phnum; i++)
		if (pread(fd, &p, sizeof(p), (off_t)(e->e_phoff + (uint64_t)i * e->e_phentsize)) ==
			    (ssize_t)sizeof(p) &&
		    p.p_type == PT_INTERP)
			return true;
	return false;
}

static int check_elf(const char *path, int fd, const Elf64_Ehdr *e, struct soda_run_refusal *why)
{
	Elf64_Ehdr self;
	int me = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
	bool same =
		me < 0 || pread(me, &self, sizeof(self), 0) != (ssize_t)sizeof(self) ||
		(self.e_ident[EI_CLASS] == e->e_ident[EI_CLASS] && self.e_machine == e->e_machine);

	if (me >= 0)
		close(me);
	if (!same)
		return refuse(why, 126, "%.900s is for another kind of processor than this soda",
			      path);
	if (!has_interpreter(fd, e))
		return refuse(why, 126,
			      "%.900s is statically linked: nothing can be loaded into it. Link it "
			      "dynamically, or have it call libsoda itself",
			      path);
	return 0;
}

static int check(const char *path, int depth, struct soda_run_refusal *why);

static int check_script(char *line, int depth, const char *path, struct soda_run_refusal *why)
{
	char *interpreter = line + 2 + strspn(line + 2, " \t");

	interpreter[strcspn(interpreter, " \t\r\n")] = 0;
	if (!*interpreter || depth > 3)
		return refuse(why, 126, "%.900s: no interpreter in its first line", path);
	return check(interpreter, depth + 1, why);
}

/* Note that a program that is refused for this reason can be run without the library. */
static int alone(int ret, struct soda_run_refusal *why)
{
	why->runs = ret;
	return ret;
}

static int check(const char *path, int depth, struct soda_run_refusal *why)
{
	union {
		Elf64_Ehdr elf;
		char line[256];
	} head = { .line = "" };
	int fd = open(path, O_RDONLY | O_CLOEXEC), ret = 0;
	ssize_t n;

	if (fd < 0) /* EACCES: it may be executable without being readable */
		return errno == EACCES ? 0 : refuse(why, 126, "%.900s: %s", path, strerror(errno));
	n = pread(fd, head.line, sizeof(head.line) - 1, 0);
	if (n >= (ssize_t)sizeof(head.elf) && !memcmp(head.elf.e_ident, ELFMAG, SELFMAG))
		ret = alone(check_elf(path, fd, &head.elf, why), why);
	else if (n > 2 && !memcmp(head.line, "#!", 2))
		ret = check_script(head.line, depth, path, why);
	if (!ret)
		ret = alone(check_privilege(path, fd, why), why);
	close(fd);
	return ret;
}

int soda_run_check(const char *name, char *path, size_t path_bytes, struct soda_run_refusal *why)
{
	why->runs = false;
	return find(name, path, path_bytes, why) || check(path, 0, why) ? -1 : 0;
}
