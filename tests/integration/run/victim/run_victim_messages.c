/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages, semaphores and memory between processes. */
#include "run_victim.h"

#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <string.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <time.h>

/* Only for _FORTIFY_SOURCE in headers. */
mqd_t __mq_open_2(const char *title, int flags);

static void check_queues(void)
{
	struct sembuf *op = object(0);
	struct timespec *soon = object(1);
	int id = semget(IPC_PRIVATE, 1, 0600);
	struct msqid_ds *messages = object(2);
	struct shmid_ds *memory = object(3);

	if (id >= 0) {
		*op = (struct sembuf){ .sem_op = -1 };
		*soon = (struct timespec){ 0, 1000000 };
		CHECK(AWAY(semtimedop(id, op, 1, soon)) < 0 && errno == EAGAIN);
		CHECK(!semctl(id, 0, IPC_RMID));
	}
	id = msgget(IPC_PRIVATE, 0600);
	if (id >= 0) {
		CHECK(!AWAY(msgctl(id, IPC_STAT, messages)) && messages->msg_qbytes > 0);
		CHECK(!msgctl(id, IPC_RMID, NULL));
	}
	id = shmget(IPC_PRIVATE, 12345, 0600);
	if (id >= 0) {
		CHECK(!AWAY(shmctl(id, IPC_STAT, memory)) && memory->shm_segsz == 12345);
		CHECK(!shmctl(id, IPC_RMID, NULL));
	}
}

static void check_posix_queues(void)
{
	char *p = object(0), *title = object(1);
	struct mq_attr *attr = object(2), *old = object(3);
	unsigned *priority = object(4);
	struct timespec *until = object(5);
	struct sigevent *none = object(6);
	mqd_t q, again;

	*attr = (struct mq_attr){ .mq_maxmsg = 2, .mq_msgsize = 100 };
	sprintf(title, "/soda-run-%d", getpid());
	q = AWAY(mq_open(title, O_CREAT | O_RDWR, 0600, attr));
	if (q == (mqd_t)-1) {
		CHECK(errno != EFAULT);
		return; /* not everywhere */
	}
	strcpy(p, "queued");
	CHECK(!AWAY(mq_send(q, p, 7, 5)) && !AWAY(mq_timedsend(q, p, 7, 6, until)));
	for (unsigned i = 6; i > 4; i--) {
		memset(p, 0, 7);
		*priority = 0;
		CHECK((i > 5 ? AWAY(mq_timedreceive(q, p, 100, priority, until))
			     : AWAY(mq_receive(q, p, 100, priority))) == 7);
		CHECK(!strcmp(p, "queued") && *priority == i);
	}
	CHECK(!AWAY(mq_getattr(q, attr)) && attr->mq_maxmsg == 2);
	attr->mq_flags = O_NONBLOCK;
	CHECK(!AWAY(mq_setattr(q, attr, old)) && !old->mq_flags);
	*none = (struct sigevent){ .sigev_notify = SIGEV_NONE };
	CHECK(!AWAY(mq_notify(q, none)) && !mq_notify(q, NULL));
	again = AWAY(__mq_open_2(title, O_RDONLY));
	CHECK(again != (mqd_t)-1 && !mq_close(again));
	CHECK(!mq_close(q) && !AWAY(mq_unlink(title)));
}

void check_ipc(void)
{
	check_queues();
	check_posix_queues();
}
