/* SPDX-License-Identifier: BSD-3-Clause */
/* From facts to findings.  Each check has one function, and one sentence for what it wants. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/conf/conf.h"
#include "soda/doctor/doctor.h"

/* A container's filter refuses what the kernel has: other kernels do not help. */
#define ALLOW                                                                                      \
	"the container's filter of system calls (seccomp) forbids what the kernel may have: "      \
	"allow "                                                                                   \
	"userfaultfd and process_madvise in its profile (podman run --security-opt "               \
	"seccomp=PROFILE.json)"
#define FOLIOS "/sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled"
#define GIVE_DEVICE "give the user access: setfacl -m u:USER:rw /dev/userfaultfd"

enum {
	MAP_COUNT_MIN = 65530,	/* the kernel's own default */
	DESCRIPTORS_SPARE = 64, /* beside connections: files, pipes, what the program opens */
};

/* What connections of a program register for RDMA (docs/rdma.md): each data connection, calls. */
#define VERBS_BYTES_CONNECTION (UINT64_C(1) << 20)
#define VERBS_BYTES_CALLS (UINT64_C(136) << 10)

static struct soda_finding *add(struct soda_findings *out, const char *check,
				enum soda_verdict verdict)
{
	struct soda_finding *f = &out->list[out->n++];

	assert(out->n <= SODA_FINDINGS_MAX);
	*f = (struct soda_finding){ .verdict = verdict };
	snprintf(f->check, sizeof(f->check), "%s", check);
	return f;
}

__attribute__((format(printf, 2, 3))) static void found(struct soda_finding *f, const char *fmt,
							...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->found, sizeof(f->found), fmt, args);
	va_end(args);
}

__attribute__((format(printf, 2, 3))) static void advise(struct soda_finding *f, const char *fmt,
							 ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->advice, sizeof(f->advice), fmt, args);
	va_end(args);
}

/* The command that does what the advice says, where it needs no other word. */
__attribute__((format(printf, 2, 3))) static void command(struct soda_finding *f, const char *fmt,
							  ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(f->command, sizeof(f->command), fmt, args);
	va_end(args);
}

enum soda_verdict soda_findings_worst(const struct soda_findings *all)
{
	enum soda_verdict worst = SODA_VERDICT_OK;

	for (size_t i = 0; i < all->n; i++)
		if (all->list[i].verdict > worst)
			worst = all->list[i].verdict;
	return worst;
}

size_t soda_findings_count(const struct soda_findings *all, enum soda_verdict verdict)
{
	size_t n = 0;

	for (size_t i = 0; i < all->n; i++)
		n += all->list[i].verdict == verdict;
	return n;
}

static const char *size_or_unlimited(uint64_t bytes, char out[16])
{
	return bytes == UINT64_MAX ? strcpy(out, "unlimited") : soda_format_size(bytes, out);
}

static const char *number_or_unlimited(uint64_t n, char out[24])
{
	if (n == UINT64_MAX)
		return strcpy(out, "unlimited");
	snprintf(out, 24, "%" PRIu64, n);
	return out;
}

/* The kernel */

/* Let this user call userfaultfd, where no filter of a container forbids it. */
static void command_access(const struct soda_doctor_facts *f, struct soda_finding *to)
{
	if (f->device)
		command(to, "setfacl -m u:%u:rw /dev/userfaultfd", f->user);
	else
		command(to, "sysctl -w vm.unprivileged_userfaultfd=1");
}

static bool filtered(const struct soda_doctor_facts *f)
{
	int err = f->inline_mode.err;

	return f->seccomp && (err == -EPERM || err == -EACCES || err == -ENOSYS);
}

static void judge_inline(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	struct soda_finding *to = add(out, "kernel.inline",
				      f->inline_mode.err ? SODA_VERDICT_FAILURE : SODA_VERDICT_OK);

	if (!f->inline_mode.err) {
		found(to,
		      "Linux %s serves faults in the faulting thread (inline, the default), by %s",
		      f->release, f->inline_mode.how);
		return;
	}
	found(to, "Linux %s: %s", f->release, f->inline_mode.why.text);
	if (filtered(f)) {
		advise(to, ALLOW "; or, for root in it, --device /dev/userfaultfd");
		return;
	}
	advise(to, "no program has fabric memory here before this is repaired: a kernel from 5.7 "
		   "on with CONFIG_USERFAULTFD, and nobody who forbids userfaultfd to this user");
}

/* What a program needs handler mode for: the kernel's own accesses to its memory. */
static void judge_handler(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	const struct soda_doctor_mode *mode = &f->handler_mode;
	struct soda_finding *to = add(out, "kernel.handler", SODA_VERDICT_OK);

	if (!mode->err && !mode->user_only) {
		found(to,
		      "SODA_MODE=handler serves faults of system calls on fabric memory, too, by "
		      "%s",
		      mode->how);
		return;
	}
	if (mode->err) {
		to->verdict = SODA_VERDICT_WARNING;
		found(to, "SODA_MODE=handler does not work: %s", mode->why.text);
	} else {
		to->verdict = SODA_VERDICT_NOTE;
		found(to, "SODA_MODE=handler serves faults of the program alone: system calls on "
			  "fabric memory that is not resident fail with EFAULT");
	}
	if (filtered(f))
		advise(to, "only where programs need that: as kernel.inline says%s",
		       f->device ? ", and on the host " GIVE_DEVICE : "");
	else if (f->device)
		advise(to, "only where programs need that: " GIVE_DEVICE
			   "; or sysctl -w vm.unprivileged_userfaultfd=1");
	else
		advise(to, "only where programs need that: sysctl -w "
			   "vm.unprivileged_userfaultfd=1, or a kernel from 6.1 on, which has "
			   "/dev/userfaultfd");
	if (!filtered(f))
		command_access(f, to);
}

/* Features that cannot be tried without userfaultfd are not known, and no kernel is to blame. */
static bool untried(const struct soda_doctor_facts *f, struct soda_finding *to, const char *what)
{
	if (!filtered(f))
		return false;
	found(to, "%s: not tried, as userfaultfd is refused", what);
	return true;
}

static void judge_poison(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	struct soda_finding *to =
		add(out, "kernel.poison", f->poison ? SODA_VERDICT_OK : SODA_VERDICT_NOTE);

	if (f->poison)
		found(to, "UFFDIO_POISON works: in handler mode a page that cannot be had is "
			  "SIGBUS by one call");
	else if (!untried(f, to, "UFFDIO_POISON"))
		found(to, "no UFFDIO_POISON (Linux 6.6): in handler mode a page that cannot be "
			  "had takes another mapping of its own");
}

static void judge_minor(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	struct soda_finding *to =
		add(out, "kernel.minor", f->minor ? SODA_VERDICT_OK : SODA_VERDICT_NOTE);

	if (f->minor)
		found(to, "minor faults on shared memory work: programs can map the store of a "
			  "DPU agent (--store)");
	else if (!untried(f, to, "minor faults on shared memory"))
		found(to, "no minor faults on shared memory (Linux 5.14): programs cannot join "
			  "the store of a DPU agent (--store), and read without it");
}

static void judge_batch(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	struct soda_finding *to =
		add(out, "kernel.batch", f->batch ? SODA_VERDICT_OK : SODA_VERDICT_NOTE);

	if (f->batch) {
		found(to, "process_madvise() drops several chunks by one call");
	} else if (f->seccomp) {
		to->verdict = SODA_VERDICT_WARNING;
		found(to,
		      "process_madvise() does not work here: evictions take a call a chunk, and "
		      "a program that evicts much is several times slower");
		advise(to, ALLOW "; where that is done, the kernel is older than Linux 6.13");
	} else {
		found(to, "process_madvise() drops nothing of the caller's own (Linux 6.13): "
			  "evictions take a call a chunk");
	}
}

static void judge_tls(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	struct soda_finding *to =
		add(out, "kernel.tls", *f->no_tls ? SODA_VERDICT_NOTE : SODA_VERDICT_OK);

	if (*f->no_tls) {
		found(to,
		      "%s: SODA_TLS=require and --tls require have no data connections to "
		      "other machines, but for programs that seal",
		      f->no_tls);
		command(to, "modprobe tls");
	} else {
		found(to, "the kernel carries TLS: data connections to other machines may be "
			  "encrypted (SODA_TLS=require)");
	}
}

static void judge_privileges(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	bool missing = f->inline_mode.err == -EPERM || f->inline_mode.err == -EACCES;
	struct soda_finding *to = add(out, "privileges.userfaultfd",
				      missing ? SODA_VERDICT_FAILURE : SODA_VERDICT_OK);
	char sysctl[32] = "not there";

	if (f->unprivileged >= 0)
		snprintf(sysctl, sizeof(sysctl), "%d", f->unprivileged);
	found(to,
	      "vm.unprivileged_userfaultfd is %s; /dev/userfaultfd is %s; %s filter of system "
	      "calls; this user is %sroot",
	      sysctl,
	      !f->device	? "not there"
	      : f->device_opens ? "there, and opens"
				: "there, and does not open for this user",
	      f->seccomp ? "there is a" : "no", f->root ? "" : "not ");
	if (missing && f->seccomp)
		advise(to, "allow userfaultfd in the container's seccomp profile%s",
		       f->device ? ", or on the host " GIVE_DEVICE " (package acl)" : "");
	else if (missing)
		advise(to, "%s",
		       f->device ? GIVE_DEVICE : "sysctl -w vm.unprivileged_userfaultfd=1");
	if (missing && !f->seccomp)
		command_access(f, to);
}

void soda_judge_kernel(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	judge_inline(f, out);
	judge_handler(f, out);
	judge_poison(f, out);
	judge_minor(f, out);
	judge_batch(f, out);
	judge_tls(f, out);
	judge_privileges(f, out);
}

/* Limits */

/* What a program with a thread a processor registers for RDMA. */
static uint64_t verbs_bytes(const struct soda_doctor_facts *f)
{
	return (2 * (uint64_t)f->processors + 1) * VERBS_BYTES_CONNECTION + VERBS_BYTES_CALLS;
}

static void judge_memlock(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	bool enough = f->ipc_lock || f->memlock >= verbs_bytes(f);
	bool matters = f->verbs_wanted || (f->verbs_built && f->rdma_n);
	struct soda_finding *to = add(out, "limits.memlock", SODA_VERDICT_OK);
	char limit[16], need[16];

	size_or_unlimited(f->memlock, limit);
	soda_format_size(verbs_bytes(f), need);
	found(to, "locked memory (ulimit -l): %s%s; a program over RDMA with %u threads pins %s",
	      limit, f->ipc_lock ? ", which CAP_IPC_LOCK overrides" : "", f->processors, need);
	if (enough || !matters)
		return;
	to->verdict = f->verbs_wanted ? SODA_VERDICT_FAILURE : SODA_VERDICT_WARNING;
	advise(to,
	       "ulimit -l unlimited, memlock in /etc/security/limits.conf, or "
	       "LimitMEMLOCK=infinity of the service%s",
	       f->memlock_max < verbs_bytes(f) ? "; the hard limit is too low, too: root raises it"
					       : "");
	command(to, "ulimit -l unlimited");
}

static void judge_map_count(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	bool few = f->map_count && f->map_count < MAP_COUNT_MIN;
	struct soda_finding *to =
		add(out, "limits.map_count", few ? SODA_VERDICT_WARNING : SODA_VERDICT_OK);

	if (!f->map_count) {
		to->verdict = SODA_VERDICT_NOTE;
		found(to, "vm.max_map_count cannot be read");
		return;
	}
	found(to, "vm.max_map_count: %" PRIu64 " mappings a process", f->map_count);
	if (!few)
		return;
	advise(to,
	       "sysctl -w vm.max_map_count=%d, or more: each object, each change of protection and "
	       "each region of a server takes mappings",
	       MAP_COUNT_MIN);
	command(to, "sysctl -w vm.max_map_count=%d", MAP_COUNT_MIN);
}

static void judge_descriptors(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	uint64_t pairs =
		f->processors < SODA_CHANNEL_PAIRS_MAX ? f->processors : SODA_CHANNEL_PAIRS_MAX;
	uint64_t need = 2 * pairs + DESCRIPTORS_SPARE;
	bool few = f->descriptors < need;
	struct soda_finding *to =
		add(out, "limits.descriptors", few ? SODA_VERDICT_WARNING : SODA_VERDICT_OK);
	char soft[24], hard[24];

	found(to,
	      "descriptors (ulimit -n): %s, at most %s; connections of a program here take %" PRIu64
	      ". Daemons raise theirs to the hard limit: a server takes one for each region and "
	      "connection, an agent's store one a GiB",
	      number_or_unlimited(f->descriptors, soft),
	      number_or_unlimited(f->descriptors_max, hard), 2 * pairs + 2);
	if (!few)
		return;
	need = need < 1024 ? 1024 : need;
	advise(to, "ulimit -n %" PRIu64 "%s", need,
	       f->descriptors_max < need ? ", for which root raises the hard limit" : "");
	command(to, "ulimit -n %" PRIu64, need);
}

static void judge_core(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	struct soda_finding *to =
		add(out, "limits.core", f->core ? SODA_VERDICT_OK : SODA_VERDICT_NOTE);
	char limit[16];

	found(to, "core dumps (ulimit -c): %s; fabric memory is never in them",
	      f->core ? size_or_unlimited(f->core, limit) : "none");
	if (f->core)
		return;
	advise(to, "where a crash is to be looked into: ulimit -c unlimited");
	command(to, "ulimit -c unlimited");
}

static void judge_addresses(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	bool limited = f->addresses != UINT64_MAX;
	struct soda_finding *to =
		add(out, "limits.addresses", limited ? SODA_VERDICT_WARNING : SODA_VERDICT_OK);
	char limit[16];

	found(to, "address space (ulimit -v): %s%s", size_or_unlimited(f->addresses, limit),
	      limited ? ", which bounds how much fabric memory a program can have, its tables "
			"included"
		      : "");
	if (!limited)
		return;
	advise(to, "ulimit -v unlimited: libsoda reserves 4 TiB of addresses, not of memory");
	command(to, "ulimit -v unlimited");
}

void soda_judge_limits(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	judge_memlock(f, out);
	judge_map_count(f, out);
	judge_descriptors(f, out);
	judge_core(f, out);
	judge_addresses(f, out);
}

/* Memory */

static void judge_cgroup(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	struct soda_finding *to =
		add(out, "memory.cgroup", f->cgroup ? SODA_VERDICT_OK : SODA_VERDICT_NOTE);
	char limit[16] = "no limit", available[16];

	if (f->memory_limit < (UINT64_C(1) << 60))
		soda_format_size(f->memory_limit, limit);
	soda_format_size(f->memory_available, available);
	if (!f->cgroup)
		found(to, "no cgroup accounts for memory; %s available", available);
	else
		found(to, "memory cgroup of version %d: %s; %s available", f->cgroup, limit,
		      available);
	if (!f->cgroup)
		advise(to, "soda eval and ./demo cannot limit local memory here: mount a cgroup "
			   "hierarchy with the memory controller");
}

static void judge_overcommit(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	bool never = f->overcommit == 2;
	struct soda_finding *to =
		add(out, "memory.overcommit", never ? SODA_VERDICT_WARNING : SODA_VERDICT_OK);

	found(to, "vm.overcommit_memory: %d%s", f->overcommit,
	      never ? ": all fabric memory that a program allocates counts against the machine's "
		      "commit limit, though at most the page buffer is ever here"
		    : "");
	if (!never)
		return;
	advise(to, "sysctl -w vm.overcommit_memory=0 on nodes whose programs use fabric memory, or "
		   "a larger vm.overcommit_ratio");
	command(to, "sysctl -w vm.overcommit_memory=0");
}

static void judge_huge(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	bool always = !strcmp(f->thp, "always");
	struct soda_finding *to =
		add(out, "memory.hugepages", always ? SODA_VERDICT_NOTE : SODA_VERDICT_OK);

	found(to,
	      "transparent_hugepage: %s; pool of 2 MiB pages (soda-mem-server --hugepages): "
	      "%" PRIu64 ", of them free: %" PRIu64,
	      *f->thp ? f->thp : "not there", f->huge_pages, f->huge_free);
	if (always)
		advise(to, "fabric memory never has huge pages, but each process takes some 10 MiB "
			   "more: count that where memory is tight, or set madvise");
}

/* The node's store: src/dpu_agent/store/folios.c. */
static void judge_folios(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	bool off = !*f->folios || !strcmp(f->folios, "never") || !strcmp(f->folios, "deny");
	struct soda_finding *to =
		add(out, "memory.folios", off ? SODA_VERDICT_NOTE : SODA_VERDICT_OK);

	found(to, "shared memory in pages of 64 KiB (soda-dpu-agent --store): %s",
	      *f->folios ? f->folios : "not there");
	if (off && *f->folios) {
		advise(to, "echo advise > " FOLIOS ", before the agent starts: its store then "
			   "takes half of the processor time; other programs are not concerned");
		command(to, "echo advise > " FOLIOS);
	} else if (off) {
		advise(to, "nothing, unless an agent here has a --store: Linux 6.11 has them, and "
			   "its store takes half of the processor time then");
	}
}

void soda_judge_memory(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	judge_cgroup(f, out);
	judge_overcommit(f, out);
	judge_huge(f, out);
	judge_folios(f, out);
}

/* RDMA */

static size_t active_devices(const struct soda_doctor_facts *f)
{
	size_t n = 0;

	for (size_t i = 0; i < f->rdma_n; i++)
		n += f->rdma[i].active;
	return n;
}

static void list_devices(const struct soda_doctor_facts *f, char *out, size_t bytes)
{
	size_t at = 0;

	*out = 0;
	for (size_t i = 0; i < f->rdma_n && at < bytes; i++)
		at += (size_t)snprintf(out + at, bytes - at, "%s%s (%s)", i ? ", " : "",
				       f->rdma[i].name, f->rdma[i].active ? "active" : "down");
}

/* Nothing is missing where nobody wants RDMA. */
void soda_judge_rdma(const struct soda_doctor_facts *f, struct soda_findings *out)
{
	enum soda_verdict missing = f->verbs_wanted ? SODA_VERDICT_FAILURE : SODA_VERDICT_NOTE;
	struct soda_finding *to = add(out, "network.rdma", missing);
	char devices[400];

	if (f->verbs_wanted || f->rdma_n)
		missing = f->verbs_wanted ? SODA_VERDICT_FAILURE : SODA_VERDICT_WARNING;
	list_devices(f, devices, sizeof(devices));
	if (!f->verbs_built) {
		found(to, "this build has no RDMA (verbs://)");
		advise(to, "libibverbs-dev, librdmacm-dev, and a build with -Dverbs=enabled");
	} else if (!f->rdma_n) {
		found(to, "no RDMA device: verbs:// cannot be used, tcp:// and shm:// can");
		if (f->verbs_wanted)
			advise(to, "load the device's driver, or, without an adapter: modprobe "
				   "rdma_rxe rdma_ucm; rdma link add rxe0 type rxe netdev eth0");
	} else if (!f->rdma_cm) {
		to->verdict = missing;
		found(to, "RDMA devices: %s; /dev/infiniband/rdma_cm is not there", devices);
		advise(to, "modprobe rdma_ucm; in a container, pass /dev/infiniband");
		command(to, "modprobe rdma_ucm");
	} else if (!f->rdma_cm_opens) {
		to->verdict = missing;
		found(to, "RDMA devices: %s; /dev/infiniband/rdma_cm does not open for this user",
		      devices);
		advise(to, "chmod 666 /dev/infiniband/rdma_cm, as rdma-core's udev rule does");
		command(to, "chmod 666 /dev/infiniband/rdma_cm");
	} else if (!active_devices(f)) {
		to->verdict = missing;
		found(to, "RDMA devices: %s; no port is active", devices);
		advise(to, "rdma link shows the ports: connect the cable, or bring its interface "
			   "up (ip link set DEVICE up)");
	} else {
		to->verdict = SODA_VERDICT_OK;
		found(to, "RDMA devices: %s", devices);
	}
}

/* Servers and agents */

static const char *advice_for(int err)
{
	switch (-err) {
	case ECONNREFUSED:
		return "nothing listens there: start soda-mem-server --listen with this address, "
		       "or correct host and port";
	case ENOENT:
		return "no socket has this name: a daemon on this machine makes it "
		       "(soda-mem-server --listen shm:///PATH), and the path must be visible here";
	case ETIMEDOUT:
	case EHOSTUNREACH:
	case ENETUNREACH:
	case EHOSTDOWN:
	case ENETDOWN:
		return "is the host up, and does a firewall let the port through? --timeout waits "
		       "longer";
	case EACCES:
	case EPERM:
		return "it serves its own user alone: start it as this user, or with "
		       "--allow-other; this user must be allowed to write to the socket of "
		       "shm:///PATH, too. Of a server of another user the program wants to be "
		       "told so: SODA_SERVER_USER";
	case EPROTONOSUPPORT:
		return "install the same version of SODA on both sides";
	case EPROTO:
		return "something else listens there: correct host and port";
	case EINVAL:
		return "write it as tcp://HOST:PORT, verbs://HOST:PORT, shm:///PATH or, of an "
		       "agent, unix:///PATH";
	case ENOTSUP:
		return "build SODA with this transport, or use tcp://";
	default:
		return "the log of the daemon there says more";
	}
}

static void judge_version(const struct soda_doctor_peer *p, struct soda_findings *out)
{
	struct soda_finding *to;

	if (!strcmp(p->version, SODA_VERSION))
		return;
	to = add(out, "servers.version", SODA_VERDICT_WARNING);
	found(to, "%s has version %s, this program " SODA_VERSION, p->address,
	      *p->version ? p->version : "(unknown)");
	advise(to, "install the same version on all nodes");
}

static void judge_room(const struct soda_doctor_peer *p, struct soda_findings *out)
{
	struct soda_finding *to;

	if (p->free_bytes || !p->capacity)
		return;
	to = add(out, "servers.room", SODA_VERDICT_WARNING);
	found(to, "%s has promised all of its memory: the next allocation is refused", p->address);
	advise(to, "end programs that use it, or start it with a larger --capacity");
}

void soda_judge_peer(const struct soda_doctor_peer *p, struct soda_findings *out)
{
	struct soda_finding *to = add(out, "servers.reached", SODA_VERDICT_FAILURE);
	char room[16];

	if (p->err) {
		found(to, "%s (%s): %s", p->address, p->named_by, p->why.text);
		advise(to, "%s", advice_for(p->err));
		return;
	}
	to->verdict = p->draining ? SODA_VERDICT_FAILURE : SODA_VERDICT_OK;
	found(to, "%s (%s): a %s of version %s, %s free, answered after %u ms%s", p->address,
	      p->named_by, p->agent ? "DPU agent" : "memory server",
	      *p->version ? p->version : "(unknown)", soda_format_size(p->free_bytes, room), p->ms,
	      p->draining ? ", and is about to end" : "");
	if (p->draining)
		advise(to, "it takes no new programs: wait for its successor, or name another one");
	judge_version(p, out);
	judge_room(p, out);
}

void soda_judge_trial(const struct soda_doctor_trial *t, struct soda_findings *out)
{
	struct soda_finding *to =
		add(out, "program.memory", t->err ? SODA_VERDICT_FAILURE : SODA_VERDICT_OK);
	const char *whose = t->private_server ? "a private server" : "the configured server";

	if (!t->err) {
		found(to,
		      "a program allocated fabric memory on %s, stored to it, had it evicted, "
		      "and loaded the same again",
		      whose);
		return;
	}
	found(to, "a program that wanted fabric memory on %s did not get it: %s", whose,
	      t->why.text);
	advise(to, "%s",
	       t->err == -EINVAL ? "correct the SODA_ variables of the environment; soda(7) lists "
				   "them"
				 : "repair what else fails first; SODA_LOG=info lets a program "
				   "say more");
}
