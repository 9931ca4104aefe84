/* SPDX-License-Identifier: BSD-3-Clause */
/* Structures, names and sets that lie in fabric memory, each not resident when the call comes. */
#include "run_victim.h"

#include <aio.h>
#include <dirent.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>

static char *base, dir[] = "/tmp/soda-run-XXXXXX";

void *object(unsigned n)
{
	return base + n * 65536 + PAGE - 8;
}

void objects_away(void)
{
	CHECK(!madvise(base, 3 * MIB, MADV_PAGEOUT));
}

char *name(unsigned n, const char *file)
{
	char *s = object(n);

	sprintf(s, "%s/%s", dir, file);
	return s;
}

static void check_stat(void)
{
	char *path = name(0, "file"), *link = name(1, "link");
	struct stat *st = object(2);
	struct statx *sx = object(3);
	struct statfs *fs = object(4);
	struct statvfs *vfs = object(5);
	struct timespec *times = object(6);
	char *text = object(7);
	int fd = AWAY(open(path, O_CREAT | O_RDWR, 0640));

	CHECK(fd >= 0 && write(fd, "hello", 5) == 5);
	CHECK(!AWAY(fstat(fd, st)) && st->st_size == 5 && (st->st_mode & 0777) == 0640);
	CHECK(!AWAY(chmod(path, 0600)));
	CHECK(!AWAY(stat(path, st)) && (st->st_mode & 0777) == 0600);
	CHECK(!AWAY(symlink(path, link)) && !AWAY(lstat(link, st)) && S_ISLNK(st->st_mode));
	CHECK(!AWAY(fstatat(AT_FDCWD, link, st, 0)) && S_ISREG(st->st_mode));
	CHECK(AWAY(readlink(link, text, 200)) == (ssize_t)strlen(path));
	CHECK(!memcmp(text, path, strlen(path)));
	CHECK(!AWAY(statx(AT_FDCWD, path, 0, STATX_SIZE, sx)) && sx->stx_size == 5);
	CHECK(!AWAY(statfs(path, fs)) && fs->f_bsize > 0 && !AWAY(fstatfs(fd, fs)));
	CHECK(!AWAY(statvfs(path, vfs)) && vfs->f_bsize > 0 && !AWAY(fstatvfs(fd, vfs)));
	times[0] = times[1] = (struct timespec){ 1000, 5 };
	CHECK(!AWAY(utimensat(AT_FDCWD, path, times, 0)) && !fstat(fd, st));
	CHECK(st->st_mtim.tv_sec == 1000);
	times[1].tv_sec = 2000;
	CHECK(!AWAY(futimens(fd, times)) && !fstat(fd, st) && st->st_mtim.tv_sec == 2000);
	CHECK(AWAY(stat(base + 1, st)) < 0 && errno == ENOENT);
	CHECK(AWAY(fstat(-1, st)) < 0 && errno == EBADF);
	close(fd);
}

static void check_names(void)
{
	char *path = name(0, "file"), *other = name(1, "other"), *sub = name(2, "sub");
	char *key = object(3), *value = object(4), *here = object(5);
	int fd;
	DIR *d;
	FILE *f;

	CHECK(!AWAY(access(path, R_OK)) && !AWAY(rename(path, other)) && access(path, R_OK));
	CHECK(!AWAY(link(other, path)) && !AWAY(truncate(path, 3)));
	CHECK(!AWAY(mkdir(sub, 0700)) && AWAY(mkdir(sub, 0700)) < 0 && errno == EEXIST);
	f = AWAY(fopen(path, "r"));
	CHECK(f && fgetc(f) == 'h' && !fclose(f));
	fd = AWAY(openat(AT_FDCWD, path, O_RDONLY));
	CHECK(fd >= 0 && !close(fd));
	strcpy(key, "user.soda");
	strcpy(value, "v");
	if (!AWAY(setxattr(path, key, value, 1, 0))) {
		value[0] = 0;
		CHECK(AWAY(getxattr(path, key, value, 100)) == 1 && value[0] == 'v');
		CHECK(AWAY(listxattr(path, value, 1000)) > 0 && !strcmp(value, key));
	} else {
		CHECK(errno != EFAULT);
	}
	CHECK(!AWAY(chdir(sub)) && AWAY(getcwd(here, 2000)) == here && !strcmp(here, sub));
	d = AWAY(opendir(sub));
	CHECK(d && readdir(d) && !closedir(d));
	fd = open(sub, O_RDONLY | O_DIRECTORY);
	CHECK(AWAY(getdents64(fd, value, 32768)) > 0 && !close(fd));
	CHECK(!chdir("/") && !AWAY(rmdir(sub)) && !AWAY(unlink(other)));
}

extern char **environ;

/* What a program is started with. */
static void check_programs(void)
{
	char *words = object(0), **argv = (char **)(base + 65536), *env[] = { words + 60, NULL };
	int *status = object(2);
	struct rusage *usage = object(3);
	siginfo_t *info = object(4);
	pid_t pid;

	strcpy(words, "/bin/sh");
	strcpy(words + 20, "-c");
	strcpy(words + 30, "exit $CODE");
	strcpy(words + 60, "CODE=9");
	argv[0] = words;
	argv[1] = words + 20;
	argv[2] = words + 30;
	argv[3] = NULL;
	CHECK(!AWAY(posix_spawn(&pid, words, NULL, NULL, argv, env)));
	CHECK(AWAY(waitpid(pid, status, 0)) == pid && WEXITSTATUS(*status) == 9);
	CHECK(!AWAY(posix_spawnp(&pid, words, NULL, NULL, argv, env)));
	CHECK(AWAY(wait4(pid, status, 0, usage)) == pid && WEXITSTATUS(*status) == 9);
	CHECK(!posix_spawn(&pid, words, NULL, NULL, argv, env));
	CHECK(!AWAY(waitid(P_PID, (id_t)pid, info, WEXITED)) && info->si_status == 9);
	strcpy(words, "exit 6");
	CHECK(WEXITSTATUS(AWAY(system(words))) == 6);
}

static void check_system(void)
{
	struct rusage *usage = object(0);
	struct rlimit *limit = object(1), *old = object(2);
	struct utsname *names = object(3);
	struct sysinfo *info = object(4);
	cpu_set_t *cpus = object(5);
	struct timespec *t = object(6), *left = object(7);
	struct itimerspec *timer = object(8);
	sigset_t *set = object(9);
	siginfo_t *got = object(10);
	gid_t *groups = object(11);
	struct tms *tms = object(12);
	int fd = timerfd_create(CLOCK_MONOTONIC, 0);

	CHECK(!AWAY(getrusage(RUSAGE_SELF, usage)) && usage->ru_maxrss > 0);
	CHECK(!AWAY(getrlimit(RLIMIT_CORE, limit)) && !AWAY(setrlimit(RLIMIT_CORE, limit)));
	CHECK(!AWAY(prlimit(0, RLIMIT_CORE, limit, old)) && old->rlim_max == limit->rlim_max);
	CHECK(!AWAY(uname(names)) && !strcmp(names->sysname, "Linux"));
	CHECK(!AWAY(sysinfo(info)) && info->totalram > 0);
	CHECK(!AWAY(sched_getaffinity(0, sizeof(*cpus), cpus)) && CPU_COUNT(cpus) > 0);
	CHECK(!AWAY(sched_setaffinity(0, sizeof(*cpus), cpus)));
	*t = (struct timespec){ 0, 1000000 };
	CHECK(!AWAY(nanosleep(t, left)) && !AWAY(clock_nanosleep(CLOCK_MONOTONIC, 0, t, left)));
	*timer = (struct itimerspec){ .it_value = { 100, 0 } };
	CHECK(!AWAY(timerfd_settime(fd, 0, timer, NULL)));
	memset(timer, 0, sizeof(*timer));
	CHECK(!AWAY(timerfd_gettime(fd, timer)) && timer->it_value.tv_sec >= 90);
	CHECK(AWAY(getgroups(64, groups)) >= 0 && AWAY(times(tms)) != (clock_t)-1);
	sigemptyset(set);
	sigaddset(set, SIGUSR1);
	CHECK(!pthread_sigmask(SIG_BLOCK, set, NULL) && !kill(getpid(), SIGUSR1));
	memset(got, 0, sizeof(*got));
	*t = (struct timespec){ 20, 0 };
	CHECK(AWAY(sigtimedwait(set, got, t)) == SIGUSR1 && got->si_pid == getpid());
	close(fd);
}

static void check_descriptors(void)
{
	int *ends = object(0), fd, out;
	fd_set *in = object(1), *none = object(2);
	struct timeval *wait = object(3);
	struct timespec *until = object(4);
	struct flock *lock = object(5);
	loff_t *at = object(6);
	char *path = name(7, "file");

	CHECK(!AWAY(pipe(ends)) && write(ends[1], "x", 1) == 1);
	FD_ZERO(in);
	FD_ZERO(none);
	FD_SET(ends[0], in);
	FD_SET(ends[0], none);
	*wait = (struct timeval){ 20, 0 };
	CHECK(AWAY(select(ends[1] + 1, in, NULL, none, wait)) == 1);
	CHECK(FD_ISSET(ends[0], in) && !FD_ISSET(ends[0], none) && wait->tv_sec <= 20);
	*until = (struct timespec){ 20, 0 };
	CHECK(AWAY(pselect(ends[1] + 1, in, NULL, NULL, until, NULL)) == 1);
	CHECK(FD_ISSET(ends[0], in));
	fd = open(path, O_RDWR);
	CHECK(fd >= 0 && pwrite(fd, "0123456789", 10, 0) == 10);
	*lock = (struct flock){ .l_type = F_WRLCK, .l_len = 5 };
	CHECK(!AWAY(fcntl(fd, F_SETLK, lock)));
	lock->l_type = F_RDLCK;
	CHECK(!AWAY(fcntl(fd, F_OFD_GETLK, lock)) && lock->l_type == F_WRLCK);
	out = memfd_create("out", 0);
	*at = 4;
	CHECK(AWAY(sendfile(out, fd, at, 3)) == 3 && *at == 7);
	CHECK(AWAY(copy_file_range(fd, at, out, NULL, 2, 0)) == 2 ? *at == 9 : errno != EFAULT);
	close(out);
	close(fd);
	close(ends[0]);
	close(ends[1]);
}

static void check_sockets(void)
{
	struct sockaddr_un *to = object(0), *from = object(1);
	socklen_t *n = object(2);
	int *number = object(3), *pair = object(4), a = socket(AF_UNIX, SOCK_STREAM, 0), b, c;
	struct mmsghdr *v = (struct mmsghdr *)(base + 5 * 65536);
	struct iovec *iov = (struct iovec *)(base + 6 * 65536);
	char *data = base + 7 * 65536;

	memset(to, 0, sizeof(*to));
	to->sun_family = AF_UNIX;
	sprintf(to->sun_path, "%s/socket", dir);
	CHECK(!AWAY(bind(a, (struct sockaddr *)to, sizeof(*to))) && !listen(a, 5));
	*n = sizeof(*from);
	CHECK(!AWAY(getsockname(a, (struct sockaddr *)from, n)));
	CHECK(!strcmp(from->sun_path, to->sun_path));
	b = socket(AF_UNIX, SOCK_STREAM, 0);
	CHECK(!AWAY(connect(b, (struct sockaddr *)to, sizeof(*to))));
	*n = sizeof(*from);
	c = AWAY(accept(a, (struct sockaddr *)from, n));
	CHECK(c >= 0 && *n < sizeof(*from));
	*number = 1;
	CHECK(!AWAY(setsockopt(a, SOL_SOCKET, SO_KEEPALIVE, number, sizeof(*number))));
	*number = 0;
	*n = sizeof(*number);
	CHECK(!AWAY(getsockopt(a, SOL_SOCKET, SO_KEEPALIVE, number, n)) && *number == 1);
	close(a);
	close(b);
	close(c);
	unlink(to->sun_path);
	CHECK(!AWAY(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair)));
	memset(v, 0, 4 * sizeof(*v));
	for (int i = 0; i < 3; i++) {
		memset(data + i * 9000, 'a' + i, 9000);
		iov[i] = (struct iovec){ data + i * 9000, (size_t)(1000 * (i + 1)) };
		v[i].msg_hdr.msg_iov = &iov[i];
		v[i].msg_hdr.msg_iovlen = 1;
	}
	CHECK(AWAY(sendmmsg(pair[0], v, 3, 0)) == 3 && v[2].msg_len == 3000);
	for (int i = 0; i < 3; i++)
		iov[i] = (struct iovec){ data + 100000 + i * 9000, 9000 };
	CHECK(AWAY(recvmmsg(pair[1], v, 3, MSG_WAITFORONE, NULL)) == 3);
	CHECK(v[0].msg_len == 1000 && v[1].msg_len == 2000 && data[109000 + 1999] == 'b');
	CHECK(AWAY(recvmmsg(pair[1], v, 3, MSG_DONTWAIT, NULL)) < 0 && errno == EAGAIN);
	close(pair[0]);
	close(pair[1]);
}

static void check_queues(void)
{
	struct {
		long type;
		char text[500];
	} *m = object(0);
	struct sembuf *op = object(1);
	int id = msgget(IPC_PRIVATE, 0600);

	if (id >= 0) {
		m->type = 3;
		memset(m->text, 'q', sizeof(m->text));
		CHECK(!AWAY(msgsnd(id, m, sizeof(m->text), 0)));
		memset(m, 0, sizeof(*m));
		CHECK(AWAY(msgrcv(id, m, sizeof(m->text), 0, 0)) == sizeof(m->text));
		CHECK(m->type == 3 && m->text[499] == 'q' && !msgctl(id, IPC_RMID, NULL));
	}
	id = semget(IPC_PRIVATE, 1, 0600);
	if (id >= 0) {
		*op = (struct sembuf){ .sem_op = 1 };
		CHECK(!AWAY(semop(id, op, 1)) && semctl(id, 0, GETVAL) == 1);
		CHECK(!semctl(id, 0, IPC_RMID));
	}
}

static void check_vectors(void)
{
	struct iovec *v = object(0);
	char *p = base + 65536, *path = name(3, "file");
	int fd = open(path, O_RDWR | O_TRUNC);

	memset(p, 'v', 70000);
	v[0] = (struct iovec){ p, 30000 };
	v[1] = (struct iovec){ p + 30000, 40000 };
	for (int flags = 0; flags <= RWF_DSYNC; flags += RWF_DSYNC) {
		CHECK(AWAY(pwritev2(fd, v, 2, 0, flags)) == 70000);
		memset(p, 0, 70000);
		CHECK(AWAY(preadv2(fd, v, 2, 0, flags ? RWF_HIPRI : 0)) == 70000);
		CHECK(p[0] == 'v' && p[29999] == 'v' && p[30000] == 'v' && p[69999] == 'v');
	}
	CHECK(lseek(fd, 10, SEEK_SET) == 10 && AWAY(preadv2(fd, v, 2, -1, 0)) == 69990);
	CHECK(lseek(fd, 0, SEEK_CUR) == 70000);
	CHECK(AWAY(preadv2(fd, v, 2, -2, 0)) < 0 && errno == EINVAL);
	close(fd);
}

static pthread_barrier_t told;

static void tell(union sigval value)
{
	CHECK(value.sival_int == 5);
	pthread_barrier_wait(&told);
}

static void check_aio(void)
{
	struct aiocb *in = object(0), *list[2] = { in, NULL }, local;
	char *p = base + 4 * 65536, *path = name(3, "file"), small[10];
	int fd = open(path, O_RDWR);

	memset(p, 'w', 300000);
	memset(in, 0, sizeof(*in));
	in->aio_fildes = fd;
	in->aio_buf = p;
	in->aio_nbytes = 300000;
	CHECK(!AWAY(aio_write(in)) && !aio_suspend((const struct aiocb *const *)list, 1, NULL));
	CHECK(!aio_error(in) && aio_return(in) == 300000);
	memset(p, 0, 300000);
	in->aio_sigevent.sigev_notify = SIGEV_THREAD;
	in->aio_sigevent.sigev_notify_function = tell;
	in->aio_sigevent.sigev_value.sival_int = 5;
	CHECK(!pthread_barrier_init(&told, NULL, 2));
	CHECK(!AWAY(aio_read(in)));
	pthread_barrier_wait(&told);
	CHECK(aio_return(in) == 300000 && p[0] == 'w' && p[299999] == 'w');
	in->aio_sigevent.sigev_notify = SIGEV_NONE;
	CHECK(!AWAY(aio_fsync(O_SYNC, in)) && !aio_error(in));
	in->aio_lio_opcode = LIO_READ;
	local = *in;
	local.aio_buf = small;
	local.aio_nbytes = sizeof(small);
	list[1] = &local;
	CHECK(!AWAY(lio_listio(LIO_WAIT, list, 2, NULL)));
	CHECK(aio_return(in) == 300000 && aio_return(&local) == 10 && small[9] == 'w');
	in->aio_fildes = -1;
	CHECK(!AWAY(aio_read(in)) && aio_error(in) == EBADF && aio_return(in) < 0);
	close(fd);
}

void objects_make(void)
{
	base = aligned_alloc(65536, 4 * MIB);
	CHECK(base && in_fam(base) && mkdtemp(dir));
	memset(base, 0, 4 * MIB);
}

void objects_end(void)
{
	char command[100];

	sprintf(command, "rm -r %s", dir);
	CHECK(!system(command));
}

void case_small(void)
{
	objects_make();
	check_stat();
	check_names();
	check_programs();
	check_system();
	check_descriptors();
	check_sockets();
	check_queues();
	check_vectors();
	check_aio();
	objects_end();
}
