/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * ioctl with an argument in fabric memory.  Most requests say in their number how large the
 * argument is and which way it goes; older ones stand in a table.  Such an argument is copied to
 * local memory and back. For any other request the memory from the argument to the end of its page
 * is held during the call.  Memory to which the argument points is left to the kernel, but for
 * SIOCGIFCONF.
 */
#include "run/core/run.h"

#include <errno.h>
#include <linux/fiemap.h>
#include <linux/fs.h>
#include <linux/hdreg.h>
#include <linux/sockios.h>
#include <linux/vt.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <net/route.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>

enum { IN = _IOC_WRITE, OUT = _IOC_READ, BOTH = IN | OUT, PAGE = 4096 };

/* The kernel's structures; the C library's of the same names differ. */
struct kernel_termios {
	unsigned flags[4];
	unsigned char line, cc[19];
};
struct kernel_termio {
	unsigned short flags[4];
	unsigned char line, cc[8];
};

struct known {
	unsigned request;
	size_t bytes;
	unsigned way;
};

static const struct known table[] = {
	{ TCGETS, sizeof(struct kernel_termios), OUT },
	{ TCSETS, sizeof(struct kernel_termios), IN },
	{ TCSETSW, sizeof(struct kernel_termios), IN },
	{ TCSETSF, sizeof(struct kernel_termios), IN },
	{ TCGETA, sizeof(struct kernel_termio), OUT },
	{ TCSETA, sizeof(struct kernel_termio), IN },
	{ TCSETAW, sizeof(struct kernel_termio), IN },
	{ TCSETAF, sizeof(struct kernel_termio), IN },
	{ TIOCGWINSZ, sizeof(struct winsize), OUT },
	{ TIOCSWINSZ, sizeof(struct winsize), IN },
	{ TIOCGPGRP, sizeof(int), OUT },
	{ TIOCSPGRP, sizeof(int), IN },
	{ TIOCGSID, sizeof(int), OUT },
	{ TIOCOUTQ, sizeof(int), OUT },
	{ TIOCSTI, 1, IN },
	{ TIOCMGET, sizeof(int), OUT },
	{ TIOCMSET, sizeof(int), IN },
	{ TIOCMBIS, sizeof(int), IN },
	{ TIOCMBIC, sizeof(int), IN },
	{ TIOCGSOFTCAR, sizeof(int), OUT },
	{ TIOCSSOFTCAR, sizeof(int), IN },
	{ TIOCPKT, sizeof(int), IN },
	{ TIOCGETD, sizeof(int), OUT },
	{ TIOCSETD, sizeof(int), IN },
	{ FIONREAD, sizeof(int), OUT }, /* TIOCINQ and SIOCINQ, too */
	{ FIONBIO, sizeof(int), IN },
	{ FIOASYNC, sizeof(int), IN },
	{ FIOQSIZE, sizeof(loff_t), OUT },
	{ FIGETBSZ, sizeof(int), OUT },
	{ FIBMAP, sizeof(int), BOTH },
	{ FIOSETOWN, sizeof(int), IN },
	{ SIOCSPGRP, sizeof(int), IN },
	{ FIOGETOWN, sizeof(int), OUT },
	{ SIOCGPGRP, sizeof(int), OUT },
	{ SIOCATMARK, sizeof(int), OUT },
	{ SIOCGSTAMP_OLD, 16, OUT },
	{ SIOCGSTAMPNS_OLD, 16, OUT },
	{ SIOCADDRT, sizeof(struct rtentry), IN },
	{ SIOCDELRT, sizeof(struct rtentry), IN },
	{ SIOCGARP, sizeof(struct arpreq), BOTH },
	{ SIOCSARP, sizeof(struct arpreq), IN },
	{ SIOCDARP, sizeof(struct arpreq), IN },
	{ BLKROGET, sizeof(int), OUT },
	{ BLKROSET, sizeof(int), IN },
	{ BLKGETSIZE, sizeof(long), OUT },
	{ BLKRAGET, sizeof(long), OUT },
	{ BLKFRAGET, sizeof(long), OUT },
	{ BLKSSZGET, sizeof(int), OUT },
	{ BLKSECTGET, sizeof(short), OUT },
	{ BLKPBSZGET, sizeof(int), OUT },
	{ BLKIOMIN, sizeof(int), OUT },
	{ BLKIOOPT, sizeof(int), OUT },
	{ BLKALIGNOFF, sizeof(int), OUT },
	{ BLKROTATIONAL, sizeof(short), OUT },
	{ BLKDISCARDZEROES, sizeof(int), OUT },
	{ BLKDISCARD, 16, IN },
	{ BLKSECDISCARD, 16, IN },
	{ BLKZEROOUT, 16, IN },
	{ BLKBSZGET, sizeof(int), OUT }, /* the number says size_t */
	{ BLKBSZSET, sizeof(int), IN },
	{ HDIO_GETGEO, sizeof(struct hd_geometry), OUT },
	{ FS_IOC_GETFLAGS, sizeof(int), OUT }, /* the number says long */
	{ FS_IOC_SETFLAGS, sizeof(int), IN },
	{ VT_OPENQRY, sizeof(int), OUT },
	{ VT_GETMODE, sizeof(struct vt_mode), OUT },
	{ VT_SETMODE, sizeof(struct vt_mode), IN },
	{ VT_GETSTATE, sizeof(struct vt_stat), OUT },
};

/* Whether it is a request for a network interface, which reads, or fills, a struct ifreq. */
static bool of_interface(unsigned long request)
{
	return (request >= SIOCGIFNAME && request <= SIOCSIFHWBROADCAST &&
		request != SIOCGIFCONF) ||
	       (request >= SIOCGIFTXQLEN && request <= SIOCSIFTXQLEN) || request == SIOCETHTOOL ||
	       request == SIOCGMIIPHY || request == SIOCGMIIREG ||
	       (request >= SIOCDEVPRIVATE && request <= SIOCDEVPRIVATE + 15);
}

/*
 * Size of an argument that is a header with a number of entries behind it; 0: it is another
 * request.
 */
static size_t flexible(unsigned long request, const void *arg)
{
	const struct file_dedupe_range *dedupe = arg;
	const struct fiemap *map = arg;

	if (request == FS_IOC_FIEMAP)
		return sizeof(*map) + (size_t)map->fm_extent_count * sizeof(map->fm_extents[0]);
	if (request == FIDEDUPERANGE)
		return sizeof(*dedupe) + dedupe->dest_count * sizeof(dedupe->info[0]);
	return 0;
}

static bool find(unsigned long request, const void *arg, struct known *k)
{
	*k = (struct known){ 0, flexible(request, arg), BOTH };
	if (k->bytes)
		return true;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (table[i].request == request) {
			*k = table[i];
			return true;
		}
	*k = (struct known){ 0, sizeof(struct ifreq), BOTH };
	if (of_interface(request))
		return true;
	k->bytes = _IOC_SIZE(request);
	k->way = _IOC_DIR(request);
	return k->bytes && k->way && request <= UINT32_MAX;
}

static int (*next_ioctl)(int, unsigned long, ...);

/* An argument of unknown size: hold memory to the end of its page; the next page may not exist. */
static int by_hold(int fd, unsigned long request, void *arg)
{
	size_t bytes = PAGE - (uintptr_t)arg % PAGE;
	int ret;

	if (!run_hold_needed(arg))
		return next_ioctl(fd, request, arg);
	run_hold(arg, bytes, "ioctl");
	ret = next_ioctl(fd, request, arg);
	run_unhold(arg, bytes);
	return ret;
}

static int by_copy(int fd, unsigned long request, void *arg, const struct known *k)
{
	size_t size;
	void *bounce = run_bounce_get(k->bytes, &size);
	int ret;

	if (!bounce) {
		errno = ENOMEM;
		return -1;
	}
	memcpy(bounce, arg, k->bytes); /* also for OUT: the kernel may fill only a part of it */
	ret = next_ioctl(fd, request, bounce);
	if (k->way & OUT)
		memcpy(arg, bounce, k->bytes);
	run_bounce_put(bounce, size);
	return ret;
}

/* SIOCGIFCONF, whose argument points to the place for a list of interfaces. */
static int interfaces(int fd, unsigned long request, struct ifconf *arg)
{
	struct ifconf local = *arg;
	size_t bytes = arg->ifc_len > 0 ? (size_t)arg->ifc_len : 0, size;
	char *bounce = arg->ifc_buf ? run_bounce_get(bytes, &size) : NULL;
	int ret;

	if (arg->ifc_buf && !bounce) {
		errno = ENOMEM;
		return -1;
	}
	local.ifc_buf = bounce;
	ret = next_ioctl(fd, request, &local);
	if (!ret && bounce)
		memcpy(arg->ifc_buf, bounce, (size_t)local.ifc_len);
	arg->ifc_len = local.ifc_len;
	if (bounce)
		run_bounce_put(bounce, size);
	return ret;
}

RUN_API int ioctl(int fd, unsigned long request, ...)
{
	const void *caller = __builtin_return_address(0);
	struct known k;
	va_list ap;
	void *arg;

	va_start(ap, request);
	arg = va_arg(ap, void *);
	va_end(ap);
	RUN_NEXT(next_ioctl, "ioctl");
	if (run_is_ours(caller))
		return next_ioctl(fd, request, arg);
	if (request == SIOCGIFCONF && arg &&
	    (run_fam(arg) || run_fam(((struct ifconf *)arg)->ifc_buf)))
		return interfaces(fd, request, arg);
	if (!run_fam(arg))
		return next_ioctl(fd, request, arg);
	return find(request, arg, &k) ? by_copy(fd, request, arg, &k) : by_hold(fd, request, arg);
}
