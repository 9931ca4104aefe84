/* SPDX-License-Identifier: BSD-3-Clause */
/* What the floor asks of the kernel: userfaultfd, and dropping pages in batches. */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "soda/bench/floor/link.h"

/* Set by open, then constant. */
static struct {
	uint8_t *base;
	uint32_t chunk_bytes;
	int uffd, pidfd;
	bool drop_vector; /* process_madvise works on the calling process */
} kernel = { .uffd = -1, .pidfd = -1 };

void soda_floor_die(const char *what)
{
	static const char prefix[] = "soda bench: floor: ", suffix[] = " failed\n";
	ssize_t n = write(2, prefix, sizeof(prefix) - 1);

	n += write(2, what, strlen(what));
	n += write(2, suffix, sizeof(suffix) - 1);
	_exit(n > 0 ? 1 : 2);
}

void soda_floor_lost(const char *what, int err)
{
	static const char prefix[] = "soda bench: floor: waited for ",
			  late[] = ", which its server has not answered in time (20 s, or "
				   "SODA_BENCH_PATIENCE)\n",
			  gone[] = ", whose server has gone\n";
	ssize_t n = write(2, prefix, sizeof(prefix) - 1);

	n += write(2, what, strlen(what));
	n += err == -ETIMEDOUT ? write(2, late, sizeof(late) - 1)
			       : write(2, gone, sizeof(gone) - 1);
	_exit(n > 0 ? 1 : 2);
}

static uint8_t *address_of(uint32_t chunk)
{
	return kernel.base + (uint64_t)chunk * kernel.chunk_bytes;
}

void soda_floor_copy(uint32_t chunk, const uint8_t *from)
{
	uint64_t done = 0, bytes = kernel.chunk_bytes;

	while (done < bytes) {
		struct uffdio_copy copy = { .dst = (uintptr_t)address_of(chunk) + done,
					    .src = (uintptr_t)from + done,
					    .len = bytes - done };

		if (ioctl(kernel.uffd, UFFDIO_COPY, &copy) == 0)
			return;
		if (errno != EAGAIN)
			soda_floor_die("UFFDIO_COPY");
		if (copy.copy > 0)
			done += (uint64_t)copy.copy;
	}
}

void soda_floor_protect(uint32_t chunk, bool on)
{
	struct uffdio_writeprotect wp = { .range = { (uintptr_t)address_of(chunk),
						     kernel.chunk_bytes },
					  .mode = on ? UFFDIO_WRITEPROTECT_MODE_WP : 0 };

	while (ioctl(kernel.uffd, UFFDIO_WRITEPROTECT, &wp))
		if (errno != EAGAIN)
			soda_floor_die("UFFDIO_WRITEPROTECT");
}

void soda_floor_drop(const uint32_t *victims, uint32_t n)
{
	struct iovec iov[SODA_FLOOR_BATCH];
	ssize_t bytes = (ssize_t)n * kernel.chunk_bytes;

	for (uint32_t i = 0; i < n; i++)
		iov[i] = (struct iovec){ address_of(victims[i]), kernel.chunk_bytes };
	if (kernel.drop_vector &&
	    syscall(SYS_process_madvise, kernel.pidfd, iov, n, MADV_DONTNEED, 0) == bytes)
		return;
	for (uint32_t i = 0; i < n; i++)
		if (madvise(iov[i].iov_base, iov[i].iov_len, MADV_DONTNEED))
			soda_floor_die("madvise");
}

static int open_uffd(bool writes, uint64_t bytes)
{
	struct uffdio_api api = { .api = UFFD_API, .features = UFFD_FEATURE_SIGBUS };
	struct uffdio_register reg = { .range = { (uintptr_t)kernel.base, bytes },
				       .mode = UFFDIO_REGISTER_MODE_MISSING };

	if (writes) {
		api.features |= UFFD_FEATURE_PAGEFAULT_FLAG_WP;
		reg.mode |= UFFDIO_REGISTER_MODE_WP;
	}
	kernel.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY);
	if (kernel.uffd < 0 && errno == EINVAL) /* before Linux 5.11 */
		kernel.uffd = (int)syscall(SYS_userfaultfd, O_CLOEXEC);
	if (kernel.uffd < 0 || ioctl(kernel.uffd, UFFDIO_API, &api) ||
	    ioctl(kernel.uffd, UFFDIO_REGISTER, &reg))
		return -errno;
	return 0;
}

/* One page of the region, not yet used: does the kernel take the vector form? */
static void probe_drop(void)
{
	struct iovec iov = { kernel.base, kernel.chunk_bytes };

	kernel.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0);
	kernel.drop_vector = kernel.pidfd >= 0 && syscall(SYS_process_madvise, kernel.pidfd, &iov,
							  1, MADV_DONTNEED, 0) > 0;
}

int soda_floor_kernel_open(const struct soda_floor_options *opt, uint8_t *base, uint64_t bytes)
{
	int err;

	kernel.base = base;
	kernel.chunk_bytes = opt->chunk_bytes;
	err = open_uffd(opt->writes, bytes);
	if (!err)
		probe_drop();
	return err;
}

void soda_floor_kernel_close(void)
{
	if (kernel.uffd >= 0)
		close(kernel.uffd);
	if (kernel.pidfd >= 0)
		close(kernel.pidfd);
	kernel.uffd = kernel.pidfd = -1;
}
