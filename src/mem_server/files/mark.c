/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A change of the attribute moves the ctime, too.  So that is written down as it was a moment
 * before, and the file's may be later by as much as that takes.
 */
#include "mem_server/files/mark.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/log.h"
#include "mem_server/base/counters.h"
#include "mem_server/files/files.h"
#include "wire/field.h"

enum { MARK_BYTES = 24, TRIES = 8 };

#define SLACK_NS 20000000u /* two ticks of a clock that counts 100 in a second */

struct mark {
	uint64_t writer;
	uint64_t mtime_ns, ctime_ns; /* 0: the file is being changed */
};

static int put(int fd, struct mark m)
{
	uint8_t text[MARK_BYTES];

	soda_wire_put(text, m.writer, 8);
	soda_wire_put(text + 8, m.mtime_ns, 8);
	soda_wire_put(text + 16, m.ctime_ns, 8);
	return fsetxattr(fd, SODA_MARK, text, sizeof(text), 0) ? -errno : 0;
}

static int get(int fd, struct mark *m_p)
{
	uint8_t text[MARK_BYTES];
	ssize_t n = fgetxattr(fd, SODA_MARK, text, sizeof(text));

	if (n != sizeof(text))
		return n < 0 ? -errno : -EPROTO;
	*m_p = (struct mark){ soda_wire_get(text, 8), soda_wire_get(text + 8, 8),
			      soda_wire_get(text + 16, 8) };
	return 0;
}

static uint64_t ns_of(const struct timespec *t)
{
	return (uint64_t)t->tv_sec * 1000000000u + (uint64_t)t->tv_nsec;
}

/* The mark of that writer, and of the file as it is now; without times if they cannot be told. */
static struct mark now(int fd, uint64_t writer)
{
	struct stat st;

	if (fstat(fd, &st))
		return (struct mark){ writer, 0, 0 };
	return (struct mark){ writer, ns_of(&st.st_mtim), ns_of(&st.st_ctim) };
}

/* Nothing has happened from the one to the other but that the attribute was set. */
static bool follows(const struct mark *before, const struct mark *after)
{
	return before->mtime_ns == after->mtime_ns &&
	       after->ctime_ns - before->ctime_ns <= SLACK_NS;
}

/* The file is as the writer has left it. */
static bool is_its(int fd, uint64_t writer)
{
	struct mark is = now(fd, writer), m;

	return !get(fd, &m) && m.writer == writer && (!m.ctime_ns || follows(&m, &is));
}

int soda_mark_take(int fd, const struct soda_file_request *req, uint64_t *mark_p,
		   struct soda_why *why)
{
	struct mark before;
	int r, has;

	if (req->again && !is_its(fd, req->mark)) {
		soda_server_why(why, "%s: another program may have written it meanwhile",
				req->name);
		return -ESTALE;
	}
	*mark_p = req->mark;
	if (!*mark_p && getrandom(mark_p, sizeof(*mark_p), 0) != sizeof(*mark_p))
		return -EIO;
	r = put(fd, (struct mark){ *mark_p, 0, 0 });
	if (!r && fsync(fd)) /* before anything that its writer commits */
		return -EIO;
	has = r ? get(fd, &before) : 0;
	if (!r || has == -ENODATA || has == -EOPNOTSUPP) /* nobody's is there: nobody comes back */
		return 0;
	soda_server_why(why, "%s: its attribute " SODA_MARK " cannot be set: %s", req->name,
			soda_strerror(r));
	return -EIO;
}

int soda_mark_change(int fd, uint64_t mark)
{
	int r = put(fd, (struct mark){ mark, 0, 0 });
	struct mark there;

	return r && !get(fd, &there) && there.ctime_ns ? r : 0;
}

void soda_mark_settle(int fd, uint64_t mark)
{
	for (int i = 0; i < TRIES; i++) {
		struct mark before = now(fd, mark), after;

		if (put(fd, before))
			break;
		after = now(fd, mark);
		if (follows(&before, &after))
			return;
	}
	soda_mark_change(fd, mark);
}
