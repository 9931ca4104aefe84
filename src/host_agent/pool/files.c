/* SPDX-License-Identifier: BSD-3-Clause */
#include "host_agent/pool/files.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/failure.h"
#include "base/limits.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/own_fd.h"
#include "base/wait.h"
#include "client/call.h"
#include "host_agent/core/helper.h"
#include "host_agent/move/calls.h"
#include "host_agent/object/copies.h"
#include "host_agent/pages/shared.h"
#include "host_agent/pool/rebuild.h"
#include "host_agent/pool/recover.h"
#include "wire/pool.h"

enum { PLACES = 2 * SODA_COPIES, NO_PLACE = -1 };

/* What is known of a file; the thread's, once the object is shown. */
struct soda_file_copies {
	struct soda_wire_content content;
	bool known;
	uint64_t ask_ns; /* when to ask for it next */
	uint32_t pause_ms;
	bool waits, lost;  /* it was said that no server can be read, or ever will be */
	_Atomic bool held; /* a copy is on a server that is drained, and can go nowhere */
	/* What is known of each server since it was met last; `meeting` says when that was. */
	struct {
		uint32_t meeting;
		uint64_t next_ns; /* it is not asked before */
		bool same;	  /* it has the same content */
		bool other;	  /* it has another one under the name, or none */
		bool told;	  /* that was said */
	} member[SODA_MEMBERS_MAX];
};

static struct {
	pthread_t thread;
	bool runs;
	_Atomic bool stop;
	struct soda_region *_Atomic at; /* which file it works on; set with soda_regions_lock */
	struct soda_retired retired;	/* the thread's */
} files;

static const char *name_of(const struct soda_region *r)
{
	return r->name[0] ? r->name : r->file;
}

static bool given_up(const struct soda_region *r)
{
	return atomic_load(&files.stop) || atomic_load(&r->leaving);
}

static bool is_up(const struct soda_link *link)
{
	return soda_server_up(&link->server);
}

/* Whether a copy there is to be replaced. */
static bool is_gone(const struct soda_link *link)
{
	return atomic_load(&link->draining) || atomic_load(&link->expelled_ns);
}

/* Asking for contents. */

struct question {
	const struct soda_region *r;
	uint16_t region_id; /* 0: by name */
	struct soda_wire_content *content;
};

static int ask_call(struct soda_conn *control, void *arg, bool again, int timeout_ms,
		    struct soda_why *why)
{
	uint8_t body[SODA_WIRE_TELL_BYTES + SODA_WIRE_OPEN_BYTES];
	uint8_t reply[SODA_WIRE_MEMBER_BYTES + SODA_WIRE_CONTENT_BYTES + 256];
	const struct question *q = arg;
	const struct soda_region *r = q->r;
	const struct soda_wire_tell tell = { .ask = SODA_WIRE_POOL_CONTENT };
	const struct soda_wire_open open = {
		.region_id = q->region_id,
		.name_bytes = q->region_id ? 0 : (uint16_t)strlen(r->file),
		.flags = r->flags,
		.bytes = r->sealed_file ? r->file_bytes : r->bytes,
	};
	struct iovec iov[2] = { { body, sizeof(body) }, { r->file, open.name_bytes } };
	size_t bytes;
	int ret;

	soda_wire_put_tell(body, &tell);
	soda_wire_put_open(body + SODA_WIRE_TELL_BYTES, &open);
	ret = soda_conn_call(control, SODA_MSG_POOL, iov, 2, reply, sizeof(reply), &bytes,
			     timeout_ms, why);
	if (ret)
		return ret;
	/* not -EPROTO: that is the answer of a server that does not know the question */
	return bytes < SODA_WIRE_MEMBER_BYTES ||
			       soda_wire_get_content(reply + SODA_WIRE_MEMBER_BYTES,
						     bytes - SODA_WIRE_MEMBER_BYTES, q->content)
		       ? -ECONNABORTED
		       : 0;
}

/* 0: *content_p is known; -EAGAIN: it is being computed; refusals, errors of the connection. */
static int ask(const struct soda_region *r, uint16_t region_id, struct soda_link *link,
	       struct soda_wire_content *content_p, struct soda_why *why)
{
	struct question q = { r, region_id, content_p };
	int ret = soda_call_once(&link->server, ask_call, &q,
				 soda_calls_patience(SODA_FILES_ANSWER_MS), why);

	if (!ret && content_p->state == SODA_WIRE_CONTENT_COMPUTING)
		ret = -EAGAIN;
	return ret;
}

int soda_files_look(struct soda_region *r, struct soda_link *link, struct soda_why *why)
{
	struct soda_wire_content ignored;
	int ret = ask(r, 0, link, &ignored, why);

	return ret == -EAGAIN ? 0 : ret;
}

static bool is_same(const struct soda_wire_content *a, const struct soda_wire_content *b)
{
	return a->file_bytes == b->file_bytes && !memcmp(a->hash, b->hash, sizeof(a->hash));
}

/* Ask the server of a copy what the file has, until it knows. */
static void learn(struct soda_region *r, const struct soda_region *copy)
{
	struct soda_file_copies *f = r->content;
	struct soda_why why = { "" };
	uint64_t now = soda_now_ns();
	int ret;

	if (f->known || now < f->ask_ns || !is_up(copy->link))
		return;
	ret = ask(r, copy->id, copy->link, &f->content, &why);
	f->known = !ret;
	f->pause_ms = f->pause_ms ? 2 * f->pause_ms : SODA_FILES_LOOK_MS / 2;
	if (f->pause_ms > SODA_FILES_LEARN_MS)
		f->pause_ms = SODA_FILES_LEARN_MS;
	f->ask_ns = now + f->pause_ms * SODA_MS_NS;
}

static void not_before(struct soda_region *r, const struct soda_link *link, uint64_t ms)
{
	r->content->member[link->index].next_ns = soda_now_ns() + ms * SODA_MS_NS;
}

/* The server has another file of that name, or none. */
static void note_other(struct soda_region *r, const struct soda_link *link)
{
	r->content->member[link->index].same = false;
	r->content->member[link->index].other = true;
	not_before(r, link, SODA_FILES_AGAIN_MS);
}

/* A server that has started anew may have another file. */
static void forget_old(struct soda_region *r)
{
	struct soda_file_copies *f = r->content;

	for (uint32_t i = 0; i < soda_members(); i++) {
		uint32_t meeting = soda_link_meeting(&soda_agent.links[i]);

		if (f->member[i].meeting == meeting)
			continue;
		memset(&f->member[i], 0, sizeof(f->member[i]));
		f->member[i].meeting = meeting;
	}
}

/* The server has another file of that name. */
static void tell_other(struct soda_region *r, const struct soda_link *link)
{
	struct soda_file_copies *f = r->content;

	note_other(r, link);
	if (!f->member[link->index].told)
		soda_log_warning("%s: %s has another content under that name: it is not read from "
				 "there",
				 name_of(r), link->server.address);
	f->member[link->index].told = true;
}

/* Ask another server whether it has the same: then it knows when its copy is needed. */
static void look_at_other(struct soda_region *r, struct soda_link *link)
{
	struct soda_file_copies *f = r->content;
	struct soda_wire_content content;
	struct soda_why why = { "" };
	int ret = ask(r, 0, link, &content, &why);

	if (!ret && is_same(&content, &f->content)) {
		f->member[link->index].same = true;
		f->member[link->index].other = f->member[link->index].told = false;
	} else if (!ret || ret == -EFBIG) {
		tell_other(r, link);
	} else if (soda_files_lacks(ret)) {
		note_other(r, link);
	} else {
		not_before(r, link, ret == -EAGAIN ? 4 * SODA_FILES_LOOK_MS : SODA_FILES_LEARN_MS);
	}
}

static void look_at_others(struct soda_region *r)
{
	struct soda_file_copies *f = r->content;

	for (uint32_t i = 0; i < soda_members() && f->known && !given_up(r); i++) {
		struct soda_link *link = &soda_agent.links[i];

		if (is_up(link) && !f->member[i].same && soda_copy_on(r, link) < 0 &&
		    soda_now_ns() >= f->member[i].next_ns)
			look_at_other(r, link);
	}
}

/* Copies. */

static void retire(struct soda_region *copy)
{
	soda_region_retire(&files.retired, copy);
}

/* api_lock is tried, as its holder may wait for this thread. */
static void free_retired(void)
{
	if (!soda_retired_due(&files.retired) || !soda_lock_try(&soda_agent.api_lock))
		return;
	soda_retired_age(&files.retired);
	soda_lock_release(&soda_agent.api_lock);
}

static struct soda_region *describe(const struct soda_region *r, struct soda_link *link)
{
	struct soda_region *copy = soda_region_take_copy();

	if (!copy)
		return NULL;
	copy->link = link;
	copy->bytes = r->bytes;
	copy->flags = r->flags;
	copy->sealed_file = r->sealed_file;
	copy->file_bytes = r->file_bytes;
	memcpy(copy->name, r->name, sizeof(copy->name));
	copy->file = strdup(r->file);
	if (copy->file)
		return copy;
	soda_region_put_copy(copy);
	return NULL;
}

static void close_copy(struct soda_region *copy)
{
	struct soda_why why = { "" };
	int ret = soda_calls_close_region(copy, &why);

	soda_link_gave(copy->link, copy->bytes);
	if (ret)
		soda_log_error("%s is freed here, but %s keeps it until the program ends: %s",
			       name_of(copy), copy->link->server.address,
			       why.text[0] ? why.text : soda_strerror(ret));
}

/* The file's region on that server. The caller closes it, or puts it into a place. */
static int open_on(struct soda_region *r, struct soda_link *link, struct soda_region **copy_p,
		   struct soda_why *why)
{
	struct soda_region *copy = NULL;
	int ret = -ECANCELED;

	while (!soda_lock_try(&soda_agent.api_lock)) {
		if (given_up(r))
			return ret;
		poll(NULL, 0, 1);
	}
	copy = describe(r, link);
	soda_lock_release(&soda_agent.api_lock);
	if (!copy)
		return -ENOMEM;
	ret = soda_calls_open_region(copy, why);
	if (ret) {
		retire(copy);
		return ret;
	}
	soda_link_took(link, copy->bytes);
	*copy_p = copy;
	return 0;
}

int soda_files_open(struct soda_region *r, struct soda_why *why)
{
	struct soda_region *copy;
	int ret = -ENOTCONN;

	r->content = calloc(1, sizeof(*r->content));
	if (!r->content)
		return -ENOMEM;
	for (uint32_t i = 0; i < soda_members(); i++) {
		struct soda_link *link = &soda_agent.links[i];

		if (!is_up(link))
			continue;
		copy = describe(r, link);
		if (!copy)
			return -ENOMEM;
		ret = soda_calls_open_region(copy, why);
		if (!ret)
			break;
		soda_region_put_copy(copy);
		if (!soda_files_lacks(ret) && ret != -ESHUTDOWN && !soda_connection_lost(ret))
			return ret;
	}
	if (ret)
		return ret;
	soda_link_took(copy->link, copy->bytes);
	r->bytes = copy->bytes;
	r->file_id = copy->file_id;
	r->link = copy->link;
	atomic_store(&r->copy_on[0], (uint8_t)(copy->link->index + 1));
	atomic_store(&r->copy[0], copy);
	learn(r, copy);
	return 0;
}

/*
 * Whether the region that was opened has the object's content: by its hash; or, where that was
 * never known, because it is the file that was opened at first, on that server, as ids say nothing
 * of two machines.  -ESTALE: it has another one.
 */
static int verify(struct soda_region *r, struct soda_region *copy, struct soda_why *why)
{
	uint64_t until = soda_now_ns() + soda_agent.settings.fault_timeout_ms * SODA_MS_NS;
	const struct soda_file_copies *f = r->content;
	struct soda_wire_content content;
	int ret = -ENOTSUP;

	if (copy->bytes != r->bytes)
		return -ESTALE;
	while (f->known) {
		ret = ask(r, copy->id, copy->link, &content, why);
		if (ret != -EAGAIN || given_up(r) || soda_now_ns() > until)
			break;
		poll(NULL, 0, SODA_FILES_LOOK_MS / 2);
	}
	if (!ret)
		return is_same(&content, &f->content) ? 0 : -ESTALE;
	if (f->known)
		return ret;
	return copy->link == r->link && copy->file_id == r->file_id ? 0 : ret;
}

/*
 * The place of a new copy: while none can be read that of the last one, else one that is stale, or
 * free.
 */
static int choose_place(const struct soda_region *r)
{
	bool nowhere = atomic_load(&r->nowhere);
	int free = NO_PLACE;

	for (int k = 0; k < PLACES; k++) {
		bool current = soda_copy_is_current(soda_copies(r), (uint32_t)k);

		if (nowhere ? current : !current && !soda_copy_place_free(r, (uint32_t)k))
			return k;
		if (free == NO_PLACE && soda_copy_place_free(r, (uint32_t)k))
			free = k;
	}
	return free;
}

/* Copies whose server has started anew since the place was chosen: they are read no more. */
static void leave_forgotten(struct soda_region *r, uint32_t but)
{
	for (uint32_t k = 0; k < PLACES; k++)
		if (k != but && soda_copy_is_current(soda_copies(r), k) &&
		    r->copy[k]->meeting != soda_link_meeting(r->copy[k]->link))
			soda_copies_leave(r, k);
}

/* What the place had before is closed by the caller. false: the server was met anew meanwhile. */
static bool install(struct soda_region *r, int place, struct soda_region *copy, uint32_t breaks)
{
	uint32_t k = (uint32_t)place;
	bool good;

	soda_copy_fit(copy, r);
	soda_regions_lock();
	good = copy->meeting == soda_link_meeting(copy->link) &&
	       breaks == soda_server_breaks(&copy->link->server);
	if (good) {
		atomic_store(&r->copy_on[k], (uint8_t)(copy->link->index + 1));
		atomic_store(&r->copy[k], copy);
		soda_copies_begin(r, k);
		soda_copies_complete(r, k);
		leave_forgotten(r, k);
		soda_recover_set_refused(r, 0);
		atomic_store(&r->nowhere, false);
	}
	soda_regions_unlock();
	return good;
}

/* That was no answer: the server is asked again soon. err 0: it was met anew meanwhile. */
static void put_off(struct soda_region *r, const struct soda_link *link, int err,
		    const struct soda_why *why)
{
	not_before(r, link, SODA_FILES_LEARN_MS);
	soda_log_info("%s: cannot be read from %s yet: %s", name_of(r), link->server.address,
		      why->text[0] ? why->text
		      : err	   ? soda_strerror(err)
				   : "it was connected to anew");
}

/*
 * What the node's store has of the object is filled by READs of the new copy as well.  An agent
 * that knows no other copy's place answers them with data, and so does one without a store.
 */
static int join_store(const struct soda_region *r, struct soda_region *copy, struct soda_why *why)
{
	struct soda_wire_stored got;
	int fd, ret = -ENOENT;

	if (!r->shared || !soda_shared_knows(r, copy->link))
		return 0;
	soda_copy_fit(copy, r);
	for (uint32_t k = 0; k < PLACES && ret == -ENOENT; k++)
		if (r->copy[k])
			ret = soda_calls_join_store(copy, SODA_WIRE_STORE_MAP, r->copy[k], &got,
						    &fd, why);
	if (!ret)
		soda_fd_close(fd);
	return ret == -ENOENT || ret == -ENOTSUP ? 0 : ret;
}

/* Try that server. true: the file is read from there, too. */
static bool add_on(struct soda_region *r, struct soda_link *link)
{
	int place = choose_place(r), ret;
	uint32_t breaks = soda_server_breaks(&link->server);
	struct soda_region *old = place == NO_PLACE ? NULL : r->copy[place], *copy;
	struct soda_why why = { "" };

	if (place == NO_PLACE)
		return false;
	ret = open_on(r, link, &copy, &why);
	if (ret) {
		if (soda_files_lacks(ret) || ret == -EFBIG)
			note_other(r, link);
		else
			put_off(r, link, ret, &why);
		return false;
	}
	ret = verify(r, copy, &why);
	if (!ret)
		ret = join_store(r, copy, &why);
	if (!ret && install(r, place, copy, breaks)) {
		if (old) {
			close_copy(old);
			retire(old);
		}
		return true;
	}
	close_copy(copy);
	retire(copy);
	if (ret == -ESTALE)
		tell_other(r, link);
	else
		put_off(r, link, ret, &why);
	return false;
}

/* Whether a copy that can be read, and stays, lies in the server's failure domain. */
static bool shares_domain(const struct soda_region *r, const struct soda_link *link)
{
	uint32_t copies = soda_copies(r);

	for (uint32_t k = 0; k < PLACES && !atomic_load(&r->nowhere); k++)
		if (soda_copy_is_current(copies, k) && !is_gone(soda_copy_link(r, k)) &&
		    atomic_load(&soda_copy_link(r, k)->domain) == atomic_load(&link->domain))
			return true;
	return false;
}

static bool may_take(const struct soda_region *r, const struct soda_link *link)
{
	int k = soda_copy_on(r, link);
	bool has = k >= 0 && soda_copy_is_current(soda_copies(r), (uint32_t)k) &&
		   !atomic_load(&r->nowhere);

	return is_up(link) && !is_gone(link) && !has &&
	       soda_now_ns() >= r->content->member[link->index].next_ns;
}

/*
 * Whom to ask first: who has said that it has the content, whose hash is at hand there; then who
 * had a copy, and lost it by starting anew.
 */
static int rank(const struct soda_region *r, const struct soda_link *link)
{
	if (r->content->member[link->index].same)
		return 0;
	return soda_copy_on(r, link) >= 0 ? 1 : 2;
}

/* A copy more. Programs begin with different servers. NULL: nowhere now. */
static struct soda_link *add(struct soda_region *r)
{
	uint32_t n = soda_members(), from = (uint32_t)getpid() % n;

	for (int wanted = 0; wanted <= 2; wanted++)
		for (uint32_t i = 0; i < n && !given_up(r); i++) {
			struct soda_link *link = &soda_agent.links[(from + i) % n];

			if (rank(r, link) == wanted && may_take(r, link) &&
			    !shares_domain(r, link) && add_on(r, link))
				return link;
		}
	return NULL;
}

/* The copy in that place is not needed any more. */
static void give_up(struct soda_region *r, uint32_t k)
{
	struct soda_region *old = r->copy[k];

	if (!soda_copies_leave(r, k))
		return;
	close_copy(old);
	atomic_store(&r->copy[k], NULL);
	retire(old);
}

/* One look at a file. */

/* How many copies there are to read, and the first whose server is away or drained. */
static uint32_t count_good(const struct soda_region *r, int *gone_p)
{
	uint32_t copies = soda_copies(r), n = 0;

	*gone_p = NO_PLACE;
	for (uint32_t k = 0; k < PLACES; k++) {
		if (!soda_copy_is_current(copies, k))
			continue;
		if (!is_gone(soda_copy_link(r, k)))
			n++;
		else if (*gone_p == NO_PLACE)
			*gone_p = (int)k;
	}
	return atomic_load(&r->nowhere) ? 0 : n;
}

/* Whether the place has a copy that is not read, as its server was away. */
static bool is_stale(const struct soda_region *r, uint32_t k)
{
	return !soda_copy_is_current(soda_copies(r), k) && !soda_copy_place_free(r, k);
}

/* The place of such a copy; NO_PLACE: there is none. */
static int stale_place(const struct soda_region *r)
{
	for (uint32_t k = 0; k < PLACES; k++)
		if (is_stale(r, k))
			return (int)k;
	return NO_PLACE;
}

/* The place of the last current copy. */
static uint32_t last_place(const struct soda_region *r)
{
	uint32_t k = 0;

	while (k < PLACES - 1 && !soda_copy_is_current(soda_copies(r), k))
		k++;
	return k;
}

static struct soda_region *any_good(const struct soda_region *r)
{
	uint32_t copies = soda_copies(r);

	for (uint32_t k = 0; k < PLACES && !atomic_load(&r->nowhere); k++)
		if (soda_copy_is_current(copies, k) && is_up(soda_copy_link(r, k)))
			return r->copy[k];
	return NULL;
}

/* Whether all servers have said, since they were met last, that they have another file, or none. */
static bool all_others(const struct soda_region *r)
{
	for (uint32_t i = 0; i < soda_members(); i++)
		if (!is_up(&soda_agent.links[i]) || !r->content->member[i].other)
			return false;
	return true;
}

/*
 * No server that can be reached has the content.  Where the last one that had it has started anew
 * with another, and all have been asked, it is lost for now; else it is waited for.
 */
static void tell_nobody(struct soda_region *r, const struct soda_link *last)
{
	struct soda_file_copies *f = r->content;
	bool lost = atomic_load(&r->nowhere) && all_others(r);

	if (lost) {
		soda_regions_lock();
		if (atomic_load(&r->nowhere))
			soda_recover_set_refused(r, -ESTALE);
		soda_regions_unlock();
	}
	if (lost && !f->lost)
		soda_log_error("%s cannot be opened again: %s has another content under that name, "
			       "or none, and so have the others; what is not resident of it is an "
			       "error",
			       name_of(r), last->server.address);
	else if (!f->waits && !is_up(last))
		soda_log_warning("%s: %s is away%s, and what is not resident of it waits",
				 name_of(r), last->server.address,
				 f->known
					 ? ", and no other server is known to have the same content"
					 : " before it has said what the content is");
	f->waits = f->waits || !is_up(last);
	f->lost = lost;
}

/*
 * The server of the last copy is away or drained, or has lost it: another one is needed.  It takes
 * the last one's place, where nobody looks for it who finds an older place of its server first.
 */
static void replace_last(struct soda_region *r, const struct soda_link *last)
{
	struct soda_file_copies *f = r->content;
	bool drained = atomic_load(&last->draining);
	struct soda_link *to;

	for (uint32_t k = 0; k < PLACES && atomic_load(&r->nowhere); k++)
		if (is_stale(r, k))
			give_up(r, k);
	to = add(r);
	atomic_store(&f->held, !to && drained);
	if (!to) {
		if (!drained && !given_up(r))
			tell_nobody(r, last);
		return;
	}
	if (to != last)
		soda_log_warning(
			"%s: %s %s: it is read from %s from now on, which has the same content",
			name_of(r), last->server.address,
			drained	      ? "is drained"
			: is_up(last) ? "has started anew, without it"
				      : "is away",
			to->server.address);
	f->waits = f->lost = false;
}

static void tend(struct soda_region *r)
{
	struct soda_region *copy = any_good(r);
	uint32_t good;
	int gone;

	forget_old(r);
	if (copy)
		learn(r, copy);
	good = count_good(r, &gone);
	if (!good)
		replace_last(r,
			     soda_copy_link(r, gone == NO_PLACE ? last_place(r) : (uint32_t)gone));
	else if (good < r->copies_wanted)
		add(r);
	good = count_good(r, &gone);
	if (gone == NO_PLACE)
		gone = stale_place(r);
	if (good >= r->copies_wanted && gone != NO_PLACE)
		give_up(r, (uint32_t)gone);
	else if (good > r->copies_wanted)
		give_up(r, last_place(r));
	else if (good)
		look_at_others(r);
}

/* The thread. */

struct search {
	uint32_t after; /* number of the last one */
	struct soda_region *found;
};

static int next_file(struct soda_region *r, void *arg)
{
	struct search *s = arg;

	if (!r->content || r->id <= s->after || r->going || atomic_load(&r->leaving))
		return 0;
	s->found = r;
	return 1;
}

static struct soda_region *take_next(uint32_t after)
{
	struct search s = { .after = after };

	soda_regions_lock();
	soda_regions_each(next_file, &s);
	atomic_store(&files.at, s.found);
	soda_regions_unlock();
	return s.found;
}

static void *run(void *arg)
{
	while (!atomic_load(&files.stop)) {
		struct soda_region *r;

		for (uint32_t last = 0; (r = take_next(last)) && !atomic_load(&files.stop);) {
			last = r->id;
			tend(r);
			atomic_store(&files.at, NULL);
		}
		free_retired();
		poll(NULL, 0, SODA_FILES_LOOK_MS);
	}
	atomic_store(&files.at, NULL);
	return NULL;
}

int soda_files_start(void)
{
	int ret = soda_rebuild_start(); /* servers that are away are missed from now on */

	if (ret || files.runs)
		return ret;
	atomic_store(&files.stop, false);
	ret = soda_helper_start(&files.thread, "soda-files", run, NULL);
	files.runs = !ret;
	return ret;
}

void soda_files_stop(void)
{
	atomic_store(&files.stop, true);
	if (files.runs)
		soda_wait_join(files.thread, "the look at files on a pool to end");
	files.runs = false;
	files.retired = (struct soda_retired){ .young = NULL };
}

void soda_files_leave(struct soda_region *r)
{
	if (!r->content)
		return;
	atomic_store(&r->leaving, true);
	soda_regions_lock(); /* the thread has chosen r before, or does not any more */
	soda_regions_unlock();
	while (atomic_load(&files.at) == r)
		poll(NULL, 0, 1);
}

void soda_files_forget(struct soda_region *r)
{
	free(r->content);
	r->content = NULL;
}

bool soda_files_held(const struct soda_region *r)
{
	return atomic_load(&r->content->held);
}
