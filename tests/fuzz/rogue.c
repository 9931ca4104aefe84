/* SPDX-License-Identifier: BSD-3-Clause */
#include "rogue.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "transport/shm/queue.h"
#include "transport/shm/shm.h"
#include "transport/stream/stream.h"

enum { CONNECTIONS_MAX = 8, LISTED_MAX = 12 };

static int listening = -1;
static bool over_tcp;

/* One thread, a connection after the other; guarded by lock. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fuzz_input scripts[CONNECTIONS_MAX];
static unsigned scripts_n, accepted;
static int served[CONNECTIONS_MAX];

/* Memory to be passed: as a server's, as an agent's queue, or in some way wrong. */
static int make_memory(uint8_t kind, uint8_t pages)
{
	struct soda_queue q;
	uint64_t bytes = (uint64_t)pages * SODA_WIRE_PAGE;
	int fd, seals = F_SEAL_SHRINK | F_SEAL_GROW;

	if (kind % 6 == 0) {
		FUZZ_MUST(soda_queue_create(SODA_WIRE_PAGE, &q, &fd) == 0);
		soda_queue_unmap(&q);
		return fd;
	}
	if (kind % 6 == 1)
		return open("/dev/null", O_RDWR | O_CLOEXEC);
	fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	FUZZ_MUST(fd >= 0 && ftruncate(fd, (off_t)(kind & 64 ? bytes + (2 << 20) : bytes)) == 0);
	if (kind % 6 == 2)
		return fd;
	if (kind % 6 == 3)
		seals |= F_SEAL_WRITE;
	FUZZ_MUST(fcntl(fd, F_ADD_SEALS, seals) == 0);
	return fd;
}

static void send_with(int fd, const void *data, size_t bytes, int memory)
{
	struct iovec iov = { (void *)(uintptr_t)data, bytes };

	if (bytes)
		soda_stream_send_once(fd, &iov, 1, memory);
	if (memory >= 0)
		close(memory);
}

static size_t put_frame(uint8_t *out, uint8_t type, uint16_t status, size_t bytes)
{
	soda_wire_put_frame(out, &(struct soda_wire_frame){ .type = type,
							    .status = status,
							    .length = (uint32_t)bytes });
	return SODA_WIRE_FRAME_BYTES + bytes;
}

static size_t put_welcome(uint8_t *out, struct fuzz_input *in)
{
	uint8_t odd = fuzz_u8(in);
	struct soda_wire_welcome w = { .version = odd & 1 ? fuzz_u32(in) : SODA_WIRE_VERSION,
				       .max_data = odd & 2 ? fuzz_u32(in) : SODA_WIRE_MAX_DATA,
				       .instance_id = 5,
				       .client_id = 6,
				       .secret = 7,
				       .capacity = 1 << 30,
				       .known = odd >> 2 & 1,
				       .agent = odd >> 3 };

	soda_wire_put_welcome(out + SODA_WIRE_FRAME_BYTES, &w);
	return put_frame(out, SODA_MSG_OK, 0, SODA_WIRE_WELCOME_BYTES);
}

static size_t put_advised(uint8_t *out, struct fuzz_input *in)
{
	struct soda_wire_advised a = { (uint64_t)fuzz_u8(in) * SODA_WIRE_PAGE,
				       (uint64_t)fuzz_u8(in) * SODA_WIRE_PAGE };
	size_t bytes = SODA_WIRE_ADVISED_BYTES;

	soda_wire_put_advised(out + SODA_WIRE_FRAME_BYTES, &a);
	if (fuzz_u8(in) & 1) {
		soda_wire_put_key(out + SODA_WIRE_FRAME_BYTES + bytes,
				  &(struct soda_wire_key){ .rkey = 9 });
		bytes += SODA_WIRE_KEY_BYTES;
	}
	return put_frame(out, SODA_MSG_OK, 0, bytes);
}

static size_t put_listed(uint8_t *out, struct fuzz_input *in)
{
	size_t n = fuzz_u8(in) % (LISTED_MAX + 1);

	for (size_t i = 0; i < n; i++) {
		struct soda_wire_listed l = { .region_id = fuzz_u16(in), .flags = fuzz_u8(in) };

		l.bytes = fuzz_u32(in);
		l.file_id = fuzz_u8(in);
		if (l.flags & 128) /* near the end of all numbers */
			l.bytes = UINT64_MAX - l.bytes;
		soda_wire_put_listed(out + SODA_WIRE_FRAME_BYTES + i * SODA_WIRE_LISTED_BYTES, &l);
	}
	return put_frame(out, SODA_MSG_OK, 0, n * SODA_WIRE_LISTED_BYTES);
}

static size_t put_answer(uint8_t *out, uint8_t what, struct fuzz_input *in)
{
	uint8_t *body = out + SODA_WIRE_FRAME_BYTES, status = 0;
	struct soda_wire_opened opened = { 0 };
	size_t n;

	switch (what % 7) {
	case 6:
		return put_listed(out, in);
	case 1:
		return put_welcome(out, in);
	case 3:
		opened.bytes = fuzz_u32(in);
		opened.file_id = fuzz_u8(in);
		soda_wire_put_opened(body, &opened);
		return put_frame(out, SODA_MSG_OK, 0, SODA_WIRE_OPENED_BYTES);
	case 4:
		return put_advised(out, in);
	case 5:
		n = fuzz_u8(in);
		return fuzz_take(in, out, n);
	case 2:
		status = fuzz_u8(in);
		/* fallthrough */
	default:
		n = fuzz_u8(in);
		n = fuzz_take(in, body, n);
		return put_frame(out, what % 7 == 2 ? SODA_MSG_REFUSED : SODA_MSG_OK, status, n);
	}
}

/* All answers at once: the client finds them in the order of its calls. */
static void serve(int fd, struct fuzz_input *in)
{
	uint8_t out[512];

	while (in->left) {
		uint8_t what = fuzz_u8(in);
		int memory = -1;
		size_t n;

		if (what & 16) {
			memory = fuzz_u8(in);
			memory = make_memory((uint8_t)memory, fuzz_u8(in));
			if (over_tcp) { /* which cannot pass it */
				close(memory);
				memory = -1;
			}
		}
		n = put_answer(out, what & 15, in);
		send_with(fd, out, n, memory);
	}
	shutdown(fd, SHUT_WR);
}

static void *server_main(void *arg)
{
	for (;;) {
		int fd = accept4(listening, NULL, NULL, SOCK_CLOEXEC);

		if (fd < 0)
			continue;
		pthread_mutex_lock(&lock);
		if (accepted < scripts_n) {
			serve(fd, &scripts[accepted]);
			served[accepted++] = fd;
		} else {
			close(fd);
		}
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void listen_local(char address[ROGUE_ADDRESS])
{
	struct sockaddr_un addr;
	struct soda_why why;
	socklen_t bytes;

	snprintf(address, ROGUE_ADDRESS, "shm://@soda-fuzz-rogue-%d", (int)getpid());
	FUZZ_MUST(soda_shm_address(address + 6, &addr, &bytes, &why) == 0);
	listening = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FUZZ_MUST(listening >= 0 && bind(listening, (struct sockaddr *)&addr, bytes) == 0);
}

static void listen_tcp(char address[ROGUE_ADDRESS])
{
	struct sockaddr_in addr = { .sin_family = AF_INET,
				    .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t bytes = sizeof(addr);

	listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	FUZZ_MUST(listening >= 0 && bind(listening, (struct sockaddr *)&addr, bytes) == 0);
	FUZZ_MUST(getsockname(listening, (struct sockaddr *)&addr, &bytes) == 0);
	snprintf(address, ROGUE_ADDRESS, "tcp://127.0.0.1:%u", ntohs(addr.sin_port));
}

void rogue_start(bool tcp, char address[ROGUE_ADDRESS])
{
	pthread_t server;

	over_tcp = tcp;
	if (tcp)
		listen_tcp(address);
	else
		listen_local(address);
	FUZZ_MUST(listen(listening, 16) == 0);
	FUZZ_MUST(pthread_create(&server, NULL, server_main, NULL) == 0);
}

void rogue_begin(struct fuzz_input *in, unsigned connections)
{
	FUZZ_MUST(connections <= CONNECTIONS_MAX);
	pthread_mutex_lock(&lock);
	accepted = 0;
	scripts_n = connections;
	for (unsigned i = 0; i < connections; i++) {
		size_t n = fuzz_u8(in);

		n = n < in->left ? n : in->left;
		scripts[i] = (struct fuzz_input){ in->at, n };
		in->at += n;
		in->left -= n;
	}
	pthread_mutex_unlock(&lock);
}

void rogue_end(void)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < accepted; i++)
		close(served[i]);
	accepted = scripts_n = 0;
	pthread_mutex_unlock(&lock);
}
