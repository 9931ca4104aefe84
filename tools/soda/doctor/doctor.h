/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * `soda doctor`: what this machine has of what SODA needs, and what to do where something is
 * missing.
 *
 *   facts.c    reads files of /proc and /sys, and the process's limits
 *   probe.c    tries userfaultfd, with libsoda's own calls; and the kernel's TLS
 *   peers.c    asks servers and agents; a child process allocates fabric memory
 *   judge.c    decides: facts in, findings out.  It asks nobody, so that unit tests can give it
 *              machines that are not here
 *   show.c     findings as text, as commands that would repair them, and as JSON
 *   doctor.c   the command: its options, and who is asked
 *
 * Nothing is changed on the machine.  One thread.
 */
#ifndef SODA_TOOLS_DOCTOR_H
#define SODA_TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"
#include "transport/api/transport.h"
#include "trust/tls.h"

/* In the order of how bad they are. */
enum soda_verdict {
	SODA_VERDICT_OK,
	SODA_VERDICT_NOTE,    /* something is not there, and only some programs want it */
	SODA_VERDICT_WARNING, /* programs run, but some will fail, or be slow */
	SODA_VERDICT_FAILURE, /* programs do not get fabric memory here as they are configured */
};

enum { SODA_FINDINGS_MAX = 80, SODA_DOCTOR_PEERS_MAX = 16 };

struct soda_finding {
	enum soda_verdict verdict;
	char check[32];	   /* "kernel.inline": an area and a name, the same in each version */
	char found[700];   /* a sentence */
	char advice[400];  /* what to do; "": nothing */
	char command[120]; /* a shell's, which does that; "": there is none that fits everywhere */
};

struct soda_findings {
	size_t n;
	struct soda_finding list[SODA_FINDINGS_MAX];
};

/* A mode of serving page faults, as it was tried. */
struct soda_doctor_mode {
	int err;	     /* 0: a page fault was served; else negative errno */
	struct soda_why why; /* of err */
	const char *how;     /* of 0: "userfaultfd(2)", "/dev/userfaultfd" */
	bool user_only;	     /* of 0: faults of system calls are not served */
};

struct soda_rdma_device {
	char name[64];
	bool active; /* one of its ports is */
};

/* Limits: UINT64_MAX is "unlimited". */
struct soda_doctor_facts {
	char release[72]; /* of the kernel */

	/* soda_doctor_probe */
	struct soda_doctor_mode inline_mode, handler_mode;
	bool poison;		   /* UFFDIO_POISON works */
	bool minor;		   /* UFFDIO_CONTINUE of a memfd's page works */
	bool batch;		   /* process_madvise(2) drops pages of several ranges */
	char no_tls[SODA_TLS_WHY]; /* why the kernel carries no TLS; "": it does */

	/* soda_doctor_read */
	int unprivileged;	   /* vm.unprivileged_userfaultfd; -1: there is none */
	bool device, device_opens; /* /dev/userfaultfd is there; this user may open it */
	bool seccomp;		   /* a filter of system calls is in force */
	uint64_t map_count;	   /* vm.max_map_count; 0: unknown */
	int overcommit;		   /* vm.overcommit_memory; -1: unknown */
	char thp[16];		   /* transparent_hugepage/enabled, the word in force; "": none */
	char folios[16];	   /* likewise of shared memory in pages of 64 KiB */
	uint64_t huge_pages, huge_free; /* of 2 MiB, in the pool */
	struct soda_rdma_device rdma[8];
	size_t rdma_n;
	bool rdma_cm, rdma_cm_opens; /* /dev/infiniband/rdma_cm */
	int cgroup; /* version of the hierarchy that limits memory: 1, 2; 0: none */

	/* soda_doctor_measure */
	bool root, ipc_lock; /* effective user 0; CAP_IPC_LOCK */
	unsigned user;	     /* the real one's number */
	uint64_t memlock, memlock_max, descriptors, descriptors_max, core, addresses;
	uint64_t memory_limit, memory_available; /* of cgroups and machine, bytes */
	unsigned processors;			 /* that the process may run on */
	bool verbs_built;			 /* this build has the transport verbs */

	/* the caller's */
	bool verbs_wanted; /* one of the addresses is verbs://... */
};

/* A server or agent that was asked. */
struct soda_doctor_peer {
	char address[SODA_ADDRESS_MAX + 1];
	const char *named_by; /* "--server", "SODA_DPU", "argument": constant */
	int err;	      /* 0: it has answered; else negative errno */
	struct soda_why why;  /* of err */
	bool agent;	      /* of 0, and so below */
	char version[32];
	bool draining;
	uint64_t capacity, free_bytes; /* as the welcome tells them */
	uint32_t ms;		       /* from the connection to the answer */
};

/* Whether a program gets fabric memory: one was started, which stored, evicted and loaded. */
struct soda_doctor_trial {
	int err;	     /* 0, or negative errno */
	struct soda_why why; /* of err */
	bool private_server; /* no server and no agent are configured */
};

/* Try userfaultfd, and TLS.  Takes SIGBUS for that time. Waits two seconds for a fault at most. */
void soda_doctor_probe(struct soda_doctor_facts *f);
/* Read the files below root: "", or a folder that stands in for / in tests. */
void soda_doctor_read(const char *root, struct soda_doctor_facts *f);
/* The limits and rights of this process, and what memory it may have. */
void soda_doctor_measure(struct soda_doctor_facts *f);

/* Ask the peer at p->address, for at most timeout_ms a step; fills all from err on. */
void soda_doctor_ask(struct soda_doctor_peer *p, int timeout_ms);
/*
 * Let a child process allocate fabric memory, store to it, have it evicted and load it again.
 * server, dpu: addresses; both NULL: what the environment says.  A child that takes longer than
 * four times timeout_ms is killed.
 */
void soda_doctor_try(const char *server, const char *dpu, int timeout_ms,
		     struct soda_doctor_trial *t);

/* Each appends findings, of a peer three at most. */
void soda_judge_kernel(const struct soda_doctor_facts *f, struct soda_findings *out);
void soda_judge_limits(const struct soda_doctor_facts *f, struct soda_findings *out);
void soda_judge_memory(const struct soda_doctor_facts *f, struct soda_findings *out);
void soda_judge_rdma(const struct soda_doctor_facts *f, struct soda_findings *out);
void soda_judge_peer(const struct soda_doctor_peer *p, struct soda_findings *out);
void soda_judge_trial(const struct soda_doctor_trial *t, struct soda_findings *out);

/* Print to stdout; each returns 0, or EOF. */

/*
 * The worst verdict comes first.  A terminal gets lines of its width, and colours unless NO_COLOR
 * is set.  quiet: failures and warnings alone.
 */
int soda_doctor_show(const struct soda_findings *all, bool quiet);
/* A shell script of the commands, with what they repair as comments; those of notes are, too. */
int soda_doctor_show_commands(const struct soda_findings *all);
int soda_doctor_show_json(const struct soda_findings *all);

/* The worst verdict of all. */
enum soda_verdict soda_findings_worst(const struct soda_findings *all);
/* How many findings have this verdict. */
size_t soda_findings_count(const struct soda_findings *all, enum soda_verdict verdict);

#endif
