/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages and semaphores between processes, System V's and POSIX's. */
#include "run/wrap/near.h"

#include <fcntl.h>
#include <mqueue.h>
#include <stdarg.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>

RUN_NEAR(int, semop, (int id, struct sembuf *p, size_t n), (id, p, n), FAM(p),
	 IN_BYTES(p, n < 1 << 16 ? n * sizeof(*p) : 0))
RUN_NEAR(int, semtimedop, (int id, struct sembuf *p, size_t n, const struct timespec *until),
	 (id, p, n, until), FAM(p) || FAM(until), IN_BYTES(p, n < 1 << 16 ? n * sizeof(*p) : 0);
	 IN(until))
/* n does not count the long that a message begins with. */
RUN_NEAR(int, msgsnd, (int id, const void *p, size_t n, int flags), (id, p, n, flags), FAM(p),
	 IN_BYTES(p, n + sizeof(long)))
RUN_NEAR(ssize_t, msgrcv, (int id, void *p, size_t n, long type, int flags),
	 (id, p, n, type, flags), FAM(p), OUT_BYTES(p, n + sizeof(long)))
RUN_NEAR(int, mq_send, (mqd_t q, const char *p, size_t n, unsigned priority), (q, p, n, priority),
	 FAM(p), IN_BYTES(p, n))
RUN_NEAR(ssize_t, mq_receive, (mqd_t q, char *p, size_t n, unsigned *priority), (q, p, n, priority),
	 FAM(p) || FAM(priority), OUT_BYTES(p, n);
	 OUT(priority))
RUN_NEAR(int, mq_timedsend,
	 (mqd_t q, const char *p, size_t n, unsigned priority, const struct timespec *until),
	 (q, p, n, priority, until), FAM(p) || FAM(until), IN_BYTES(p, n);
	 IN(until))
RUN_NEAR(ssize_t, mq_timedreceive,
	 (mqd_t q, char *restrict p, size_t n, unsigned *restrict priority,
	  const struct timespec *restrict until),
	 (q, p, n, priority, until), FAM(p) || FAM(priority) || FAM(until), OUT_BYTES(p, n);
	 OUT(priority); IN(until))
FILLS(int, mq_getattr, (mqd_t q, struct mq_attr *p), (q, p))
CHANGES(mq_setattr, (mqd_t q, const struct mq_attr *restrict p, struct mq_attr *restrict old),
	(q, p, old))
READS(int, mq_notify, (mqd_t q, const struct sigevent *p), (q, p))
RUN_NEAR(int, mq_unlink, (const char *p), (p), FAM(p), STRING(p))
RUN_NEAR(mqd_t, __mq_open_2, (const char *p, int flags), (p, flags), FAM(p), STRING(p))

static mqd_t (*next_mq_open)(const char *, int, ...);

RUN_API mqd_t mq_open(const char *p, int flags, ...)
{
	struct run_near near = { 0 };
	struct mq_attr *attr = NULL;
	mode_t mode = 0;
	va_list ap;
	mqd_t q;

	va_start(ap, flags);
	if (flags & O_CREAT) {
		mode = va_arg(ap, mode_t);
		attr = va_arg(ap, struct mq_attr *);
	}
	va_end(ap);
	STRING(p);
	IN(attr);
	q = RUN_NEXT(next_mq_open, "mq_open")(p, flags, mode, attr);
	run_near_end(&near);
	return q;
}

/* Commands may fill a smaller structure than these, never a larger one. */
FILLS(int, msgctl, (int id, int command, struct msqid_ds *p), (id, command, p))
FILLS(int, shmctl, (int id, int command, struct shmid_ds *p), (id, command, p))
