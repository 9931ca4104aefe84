/* SPDX-License-Identifier: BSD-3-Clause */
/* Facts that are read: files below a root, and what the kernel says of this process. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "daemon/host_memory.h"
#include "soda/doctor/doctor.h"

enum { PATH_BYTES = 512 };

static void join(const char *root, const char *path, char out[PATH_BYTES])
{
	snprintf(out, PATH_BYTES, "%s%s", root, path);
}

/* The first line of a small file, without its end; false: it cannot be read. */
static bool read_line(const char *root, const char *path, char *line, size_t bytes)
{
	char full[PATH_BYTES];
	bool read_it;
	FILE *in;

	join(root, path, full);
	*line = 0;
	in = fopen(full, "re");
	if (!in)
		return false;
	read_it = fgets(line, (int)bytes, in);
	fclose(in);
	line[strcspn(line, "\n")] = 0;
	return read_it;
}

static uint64_t read_number(const char *root, const char *path, uint64_t otherwise)
{
	char line[64], *end;
	uint64_t value;

	if (!read_line(root, path, line, sizeof(line)))
		return otherwise;
	value = strtoull(line, &end, 10);
	return end != line ? value : otherwise;
}

static bool is_there(const char *root, const char *path)
{
	char full[PATH_BYTES];

	join(root, path, full);
	return access(full, F_OK) == 0;
}

/* Whether this user may open it for reading and writing: root in a container may be refused, too.
 */
static bool opens(const char *root, const char *path)
{
	char full[PATH_BYTES];
	int fd;

	join(root, path, full);
	fd = open(full, O_RDWR | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return false;
	close(fd);
	return true;
}

/* Whether /proc/self/status says that a filter of system calls is in force. */
static bool has_seccomp(const char *root)
{
	char full[PATH_BYTES], line[256];
	int mode = 0;
	FILE *in;

	join(root, "/proc/self/status", full);
	in = fopen(full, "re");
	while (in && fgets(line, sizeof(line), in))
		if (sscanf(line, "Seccomp: %d", &mode) == 1)
			break;
	if (in)
		fclose(in);
	return mode > 0;
}

/* "always [madvise] never" -> "madvise" */
static void read_chosen(const char *root, const char *path, char out[16])
{
	char line[128], *begin;

	out[0] = 0;
	if (!read_line(root, path, line, sizeof(line)))
		return;
	begin = strchr(line, '[');
	if (begin)
		snprintf(out, 16, "%.*s", (int)strcspn(begin + 1, "]"), begin + 1);
}

static void read_huge(const char *root, struct soda_doctor_facts *f)
{
	read_chosen(root, "/sys/kernel/mm/transparent_hugepage/enabled", f->thp);
	read_chosen(root, "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled",
		    f->folios);
	if (!strcmp(f->folios, "inherit"))
		read_chosen(root, "/sys/kernel/mm/transparent_hugepage/shmem_enabled", f->folios);
}

/*
 * Lines of /proc/self/cgroup are "4:memory:/path" (version 1) or "0::/path" (2); with both, the
 * controller is in the hierarchy of version 1 that names it.
 */
static int read_cgroup(const char *root)
{
	char full[PATH_BYTES], line[512], *controllers, *end;
	int version = 0;
	FILE *in;

	join(root, "/proc/self/cgroup", full);
	in = fopen(full, "re");
	while (in && fgets(line, sizeof(line), in)) {
		controllers = strchr(line, ':');
		end = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!end)
			continue;
		*end = 0;
		if (!controllers[1] && !version)
			version = 2;
		for (char *rest = controllers + 1, *word; (word = strsep(&rest, ","));)
			if (!strcmp(word, "memory"))
				version = 1;
	}
	if (in)
		fclose(in);
	return version;
}

/* A port's state is a line such as "4: ACTIVE". */
static bool is_active(const char *root, const char *device)
{
	char path[PATH_BYTES], line[64];

	for (int port = 1; port <= 4; port++) {
		snprintf(path, sizeof(path), "/sys/class/infiniband/%.64s/ports/%d/state", device,
			 port);
		if (read_line(root, path, line, sizeof(line)) && strstr(line, "ACTIVE"))
			return true;
	}
	return false;
}

static void read_rdma(const char *root, struct soda_doctor_facts *f)
{
	char full[PATH_BYTES];
	struct dirent *entry;
	DIR *dir;

	f->rdma_cm = is_there(root, "/dev/infiniband/rdma_cm");
	f->rdma_cm_opens = f->rdma_cm && opens(root, "/dev/infiniband/rdma_cm");
	join(root, "/sys/class/infiniband", full);
	dir = opendir(full);
	while (dir && (entry = readdir(dir)) && f->rdma_n < sizeof(f->rdma) / sizeof(f->rdma[0])) {
		struct soda_rdma_device *d = &f->rdma[f->rdma_n];

		if (entry->d_name[0] == '.')
			continue;
		snprintf(d->name, sizeof(d->name), "%.63s", entry->d_name);
		d->active = is_active(root, d->name);
		f->rdma_n++;
	}
	if (dir)
		closedir(dir);
}

void soda_doctor_read(const char *root, struct soda_doctor_facts *f)
{
	static const char pool[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
	char path[PATH_BYTES];

	f->unprivileged = (int)(int64_t)read_number(root, "/proc/sys/vm/unprivileged_userfaultfd",
						    UINT64_MAX);
	f->device = is_there(root, "/dev/userfaultfd");
	f->device_opens = f->device && opens(root, "/dev/userfaultfd");
	f->seccomp = has_seccomp(root);
	f->map_count = read_number(root, "/proc/sys/vm/max_map_count", 0);
	f->overcommit =
		(int)(int64_t)read_number(root, "/proc/sys/vm/overcommit_memory", UINT64_MAX);
	read_huge(root, f);
	snprintf(path, sizeof(path), "%snr_hugepages", pool);
	f->huge_pages = read_number(root, path, 0);
	snprintf(path, sizeof(path), "%sfree_hugepages", pool);
	f->huge_free = read_number(root, path, 0);
	read_rdma(root, f);
	f->cgroup = read_cgroup(root);
}

static uint64_t limit_of(__rlimit_resource_t what, uint64_t *max_p)
{
	struct rlimit limit = { RLIM_INFINITY, RLIM_INFINITY };

	getrlimit(what, &limit);
	if (max_p)
		*max_p = limit.rlim_max == RLIM_INFINITY ? UINT64_MAX : limit.rlim_max;
	return limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur;
}

static bool has_capability(unsigned which)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct sets[2] = { { 0 } };

	if (syscall(SYS_capget, &head, sets))
		return false;
	return sets[which / 32].effective >> which % 32 & 1;
}

void soda_doctor_measure(struct soda_doctor_facts *f)
{
	const struct soda_nodes anywhere = { .n = 0 };
	struct utsname name = { 0 };
	cpu_set_t set;

	uname(&name);
	snprintf(f->release, sizeof(f->release), "%.71s", name.release);
	f->root = geteuid() == 0;
	f->user = getuid();
	f->ipc_lock = has_capability(CAP_IPC_LOCK);
	f->memlock = limit_of(RLIMIT_MEMLOCK, &f->memlock_max);
	f->descriptors = limit_of(RLIMIT_NOFILE, &f->descriptors_max);
	f->core = limit_of(RLIMIT_CORE, NULL);
	f->addresses = limit_of(RLIMIT_AS, NULL);
	f->memory_limit = soda_host_memory_limit();
	f->memory_available = soda_host_memory_available(&anywhere);
	f->processors = sched_getaffinity(0, sizeof(set), &set) ? 1 : (unsigned)CPU_COUNT(&set);
	f->verbs_built = SODA_HAVE_VERBS;
}
