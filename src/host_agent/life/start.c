/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/life/start.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/conf/conf.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/numa/numa_node.h"
#include "host_agent/core/helper.h"
#include "host_agent/core/thread.h"
#include "host_agent/fault/fault.h"
#include "host_agent/fork/serve.h"
#include "host_agent/fork/views.h"
#include "host_agent/life/object.h"
#include "host_agent/life/servers.h"
#include "host_agent/life/session.h"
#include "host_agent/life/stats.h"
#include "host_agent/life/trace.h"
#include "host_agent/move/audit.h"
#include "host_agent/move/evict.h"
#include "host_agent/move/fetch.h"
#include "host_agent/move/limit.h"
#include "host_agent/move/writeback.h"
#include "host_agent/object/region.h"
#include "host_agent/object/sealing.h"
#include "host_agent/pages/install.h"
#include "host_agent/pages/mapping.h"
#include "host_agent/pages/shared.h"
#include "host_agent/pages/uffd.h"
#include "host_agent/pool/files.h"
#include "host_agent/pool/rebuild.h"

const struct soda_heap_ends *_Atomic soda_heap_ends;
void (*_Atomic soda_agent_stops)(void);

static uint32_t count_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static int start_memory(struct soda_why *why)
{
	struct soda_settings *s = &soda_agent.settings;
	const struct soda_policy *policy = soda_policy_find(s->evict, why);
	bool inline_mode = s->mode == SODA_MODE_INLINE;
	int64_t limit;
	int ret;

	if (!policy)
		return -EINVAL;
	soda_agent.page_ops = &soda_uffd_page_ops;
	soda_views_watch(&soda_agent.page_ops);
	soda_agent.chunk_shift = (uint32_t)__builtin_ctzll(s->chunk_bytes);
	soda_agent.block_shift = soda_agent.chunk_shift > 16 ? soda_agent.chunk_shift - 4 : 12;
	soda_agent.processors = count_processors();
	soda_agent.may_poll = s->poll_us && soda_agent.processors > 1;
	ret = soda_limit_check(why);
	if (ret)
		return ret;
	ret = soda_uffd_open(inline_mode, s->mechanisms == SODA_MECHANISMS_COPY, !inline_mode,
			     &soda_agent.uffd, why);
	if (ret)
		return ret;
	if (!inline_mode && soda_agent.uffd.user_only)
		soda_log_warning(
			"faults inside system calls are not served: no privilege for userfaultfd "
			"(vm.unprivileged_userfaultfd=0 and no access to /dev/userfaultfd, which "
			"setfacl -m u:USER:rw /dev/userfaultfd gives)");
	ret = soda_holder_start(soda_agent.uffd.fd);
	if (ret)
		soda_log_info("no thread holds the userfaultfd (%s): a program that closes it may "
			      "read zeros for %d ms",
			      soda_strerror(ret), SODA_KEEPER_TICK_MS);
	ret = soda_objects_start(why);
	if (ret)
		return ret;
	soda_buffer_init(&soda_agent.buffer, s->evict_high_pct, s->evict_low_pct);
	limit = soda_limit_wanted();
	if (soda_limit_is_lent())
		ret = soda_lender->begin(soda_limit_minimum(s->threads), limit, &limit, why);
	if (ret)
		return ret;
	soda_buffer_resize(&soda_agent.buffer, limit);
	soda_replace_init(&soda_agent.replacer, policy, soda_agent.table,
			  (uint64_t)soda_limit_wanted());
	return 0;
}

static void close_uffd(void)
{
	soda_holder_stop();
	soda_uffd_close();
}

static int start_faults(void)
{
	return soda_agent.settings.mode == SODA_MODE_INLINE ? soda_inline_start()
							    : soda_handler_start();
}

static int close_shared(struct soda_region *r, void *arg)
{
	soda_shared_forked(r);
	return 0;
}

static int forget_shared(struct soda_region *r, void *arg)
{
	soda_shared_forget(r);
	return 0;
}

/* Tenants' keys lie in mappings that a child does not have (soda_identity_load()). */
static void forget_identities(void)
{
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++)
		soda_agent.identities[i] = NULL;
}

/*
 * In the child of a fork, which reads the parent's FAM as it was (fork/child.h), and has no keys
 * and none of our descriptors.
 */
static void in_child(void)
{
	const struct soda_heap_ends *heap = atomic_load(&soda_heap_ends);

	if (atomic_load(&soda_agent.life) == SODA_LIFE_NEW)
		return;
	atomic_store(&soda_agent.life, SODA_LIFE_FORKED);
	if (heap)
		heap->forked();
	close_uffd();
	soda_regions_each(close_shared, NULL);
	soda_trace_forget();
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++)
		soda_session_forget(&soda_agent.links[i]);
	soda_sealing_forget();
	forget_identities();
	soda_private_stop();
	soda_stat_socket_stop();
	soda_fds_forget();
	soda_inline_stop();
	soda_closed_stop();
	soda_lock_init(&soda_agent.api_lock, SODA_RANK_API);
	/* else the range stays taken, so that the child maps nothing of its own there */
	if (!soda_forks_in_child())
		soda_objects_end();
}

static void at_exit(void)
{
	if (atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING)
		soda_agent_leave();
}

static int start_all(struct soda_why *why)
{
	const struct soda_settings *s = &soda_agent.settings;
	int ret;

	ret = start_memory(why);
	if (!ret)
		ret = soda_servers_start(why);
	if (!ret && s->seal)
		ret = soda_object_seals(why);
	if (!ret && s->trace)
		ret = soda_trace_start(s->trace, s->trace_limit, &soda_agent.page_ops, why);
	/*
	 * Not where the library sees every mprotect() (soda_fill_allowed): it writes chunks back
	 * before the program closes them.
	 */
	if (!ret && !soda_fill_allowed)
		ret = soda_closed_start();
	if (!ret)
		ret = start_faults();
	if (!ret && s->redundancy != SODA_REDUNDANCY_NONE)
		ret = soda_rebuild_start();
	return ret;
}

static void stop_sessions(void)
{
	soda_files_stop();
	soda_rebuild_stop();
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++)
		soda_session_stop(&soda_agent.links[i]);
}

/* Under `soda run`, which has said it, once for all processes. */
static void warn_of_misspelt(void)
{
	const char *given, *meant;
	int length;

	meant = getenv("SODA_RUN_LIBRARY")
			? NULL
			: soda_conf_misspelt(&soda_settings_conf, &given, &length);
	if (meant)
		soda_log_warning("%.*s in the environment is no setting and changes nothing; is "
				 "%s meant?",
				 length, given, meant);
}

int soda_agent_start(const struct soda_config *cfg, struct soda_why *why)
{
	int ret;

	switch (atomic_load(&soda_agent.life)) {
	case SODA_LIFE_RUNNING:
		return 0;
	case SODA_LIFE_FORKED:
		snprintf(why->text, sizeof(why->text),
			 "the child of a fork has no fabric memory of its own");
		return -ENOTSUP;
	case SODA_LIFE_ENDED:
		snprintf(why->text, sizeof(why->text),
			 "the runtime has ended and does not start again");
		return -ESHUTDOWN;
	default:
		break;
	}
	ret = soda_settings_load(cfg, &soda_agent.settings, why);
	if (!ret)
		soda_node_choose(soda_agent.settings.node);
	if (ret)
		return ret;
	soda_agent.pid = getpid();
	soda_log_setup("soda", (int)soda_agent.settings.log_level, soda_agent.settings.log,
		       soda_agent.settings.log_arg);
	warn_of_misspelt();
	ret = start_all(why);
	if (ret) {
		if (!why->text[0])
			snprintf(why->text, sizeof(why->text), "the runtime did not start: %s",
				 soda_strerror(ret));
		stop_sessions();
		soda_sealing_stop();
		soda_private_stop();
		soda_closed_stop();
		soda_trace_stop();
		close_uffd();
		soda_objects_undo();
		soda_settings_free(&soda_agent.settings);
		atomic_store(&soda_agent.members, 0); /* the next attempt may find others */
		soda_agent.agent[0] = '\0';
		for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++) {
			soda_identity_free(soda_agent.identities[i]);
			soda_agent.identities[i] = NULL;
		}
		return ret;
	}
	soda_stat_socket_start();
	soda_forks_child = in_child;
	atexit(at_exit);
	atomic_store(&soda_agent.life, SODA_LIFE_RUNNING);
	soda_limit_resize(true);
	soda_log_info("%s, %s mode, chunks of %llu KiB, %s, server %s", soda_agent.uffd.how,
		      soda_agent.settings.mode == SODA_MODE_INLINE ? "inline" : "handler",
		      (unsigned long long)soda_chunk_bytes() >> 10,
		      soda_agent.replacer.policy->name,
		      soda_members() > 1 ? soda_agent.settings.server
					 : soda_agent.links[0].server.address);
	if (soda_agent.agent[0])
		soda_log_info("%s stands in front of a pool of %u servers", soda_agent.agent,
			      soda_members());
	return 0;
}

static int write_file_back(struct soda_region *r, void *arg)
{
	struct soda_why why = { "" };
	int ret, *first = arg;

	if (!(r->flags & SODA_WRITABLE) || atomic_load(&r->abandoned))
		return 0;
	ret = soda_sync_range(r, r->first, r->chunks, &why);
	if (ret) {
		soda_log_error("file %s was not written back: %s", r->file,
			       why.text[0] ? why.text : soda_strerror(ret));
		if (!*first)
			*first = ret;
	}
	return 0;
}

static int count_writable(struct soda_region *r, void *arg)
{
	uint32_t *n = arg;

	*n += r->flags & SODA_WRITABLE && !atomic_load(&r->abandoned);
	return 0;
}

enum { API_BIT = 1 << SODA_RANK_API };

/* Without a lock, for nothing but flags is looked at, and no object's struct is ever unmapped. */
static uint32_t writable_files(void)
{
	uint32_t n = 0;

	soda_regions_each(count_writable, &n);
	return n;
}

/*
 * api_lock, or the right to do as if we had it, because the call that this thread has interrupted
 * does.  Another thread may have it and wait for a server: files are worth as long a wait as a
 * fault, the goodbye is not.
 */
static bool enter_at_end(uint32_t mine, uint32_t files)
{
	uint64_t ms = files ? soda_agent.settings.fault_timeout_ms : SODA_GOODBYE_MS;

	if (mine & API_BIT)
		return true;
	if (mine)
		return soda_lock_try(&soda_agent.api_lock);
	return soda_lock_acquire_until(&soda_agent.api_lock, soda_now_ns() + ms * SODA_MS_NS);
}

/* mine: as soda_lock_mine(). */
static void leave(uint32_t mine, uint32_t files)
{
	int ignored = 0; /* logged */

	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING)
		return;
	if (!(mine & ~(uint32_t)API_BIT))
		soda_regions_each(write_file_back, &ignored);
	else if (files)
		soda_log_error("%u WRITABLE files are not written back: the process ends in a "
			       "signal handler that has interrupted a call to the server",
			       files);
	for (uint32_t i = 0; i < soda_members(); i++)
		soda_session_leave(&soda_agent.links[i]);
	soda_trace_stop();
}

/*
 * At exit other threads still run, and exit handlers that follow may touch FAM: faults are served
 * until the process ends, and the kernel closes the connections.
 */
void soda_agent_leave(void)
{
	uint32_t mine = soda_lock_mine(), files = writable_files();

	if (enter_at_end(mine, files)) {
		leave(mine, files);
		if (!(mine & API_BIT))
			soda_lock_release(&soda_agent.api_lock);
	} else if (files) {
		soda_log_error("%u WRITABLE files are not written back: another thread is in a "
			       "call of the library, which has not ended for %llu ms",
			       files, (unsigned long long)soda_agent.settings.fault_timeout_ms);
	}
}

int soda_agent_stop(void)
{
	void (*stops)(void) = atomic_load(&soda_agent_stops);
	const struct soda_heap_ends *heap;
	int ret = 0;

	if (stops && atomic_load(&soda_agent.life) == SODA_LIFE_RUNNING)
		stops();
	soda_lock_acquire(&soda_agent.api_lock);
	while (!soda_region_await_unused(NULL))
		; /* another thread is in soda_sync(NULL, 0) */
	if (atomic_load(&soda_agent.life) != SODA_LIFE_RUNNING) {
		soda_lock_release(&soda_agent.api_lock);
		return 0;
	}
	soda_regions_each(write_file_back, &ret);
	soda_audit_quiet("at the end");
	/* Write-back reads the pages, and write-protects them: it ends before they go. */
	for (uint32_t i = 0; i < SODA_MEMBERS_MAX; i++)
		soda_writeback_stop(&soda_agent.links[i]);
	atomic_store(&soda_agent.life, SODA_LIFE_ENDED);
	heap = atomic_load(&soda_heap_ends);
	if (heap)
		heap->ended_locked();
	/* First the pages: a thread that touches one later gets SIGSEGV, never zeros. */
	soda_objects_end();
	soda_handler_stop();
	soda_trace_stop();
	stop_sessions();
	soda_stat_socket_stop();
	close_uffd();
	soda_private_stop();
	soda_inline_stop();
	soda_closed_stop();
	soda_regions_each(forget_shared, NULL);
	soda_regions_forget();
	soda_sealing_stop();
	soda_lock_release(&soda_agent.api_lock);
	return ret;
}
