/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A script of what programs ask of an agent's movement, well-formed or not, without a transport
 * between.  The agent reads this process where a START names its token.
 *
 *   ops: what 8, program 8, then
 *     0      HELLO: who 8 (bits: not of this machine, another user)
 *     1      START: token 8 (right, wrong, none, nowhere; bits: with a ring, unknown flags)
 *     2      RESERVE: bytes 32, copies 8, mode and flags 8, name 8
 *     3      POST: buffer 8, ticket 8, pieces 8, of each: kind 8, from 16, bytes 16, stride 16,
 *            count 8, offset 16
 *     4      PUT: ticket 8, position 8, length 16
 *     5      FAIL, CANCEL, RELEASE, END, MAP, AWAIT: which 8, number 8
 *     6      OPEN: milliseconds 8, name 8
 *     7      NEXT, and what it names is read: after 8, milliseconds 8
 *     8      READ: step 8, offset 32, bytes 32
 *     9      a call as it is: type 8, length 16, body
 *     10     the connection ends
 *     11     SEND: which 8 (bits: unreadable, its stream ends within), buffer 8, ticket 8, position
 *            8, pieces 8, of each as in a POST; length 32
 *     12     PART: ticket 8, to 16, milliseconds 8
 *     13     POST_PARTS: as 3
 *     14     a list in the ring: buffer 8, ticket 8, pieces 8, of each as in a POST; how many lists
 *            that is said to be 8
 *     15     ALLOC: bytes 16, shift 8; what is written behind its data 8
 *     16     FREE: which 8
 *     17     RANGE: region 8, copies 8, page 8, bytes 32
 */
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "dpu_agent/life/agent.h"
#include "fuzz/fixtures/calls.h"
#include "transport/listen/server.h"
#include "wire/field.h"
#include "wire/move_ring.h"

enum { PROGRAMS = 4, OPS_MAX = 200, MEMORY = 1 << 16, PIECES = 16, WAIT_MS = 3, BUDGET = 8 << 20 };

/* A ticket has a notice once, and none has one that was not accepted. */
struct program {
	struct soda_peer base; /* first */
	bool used;
	uint64_t tickets[SODA_MOVE_CREDITS], last_ticket, put_at;
	unsigned tickets_n;
	struct soda_move_ring *ring; /* then answers have no notices */
	uint32_t told;
	int area_fd; /* of the last ALLOC */
};

static struct program programs[PROGRAMS];
static uint8_t memory[MEMORY]; /* of every program */
static uint8_t token[SODA_MOVE_TOKEN_BYTES] = "a random number";
static uint8_t answer[SODA_WIRE_MAX_CONTROL];

/* The script ends connections itself. */
static void peer_close(struct soda_peer *base)
{
}

static const struct soda_peer_ops peer_ops = { .close = peer_close };

static void hello(struct program *p, uint8_t who)
{
	const struct soda_wire_hello h = { .magic = SODA_WIRE_MAGIC,
					   .version = SODA_WIRE_VERSION,
					   .kind = SODA_CONN_CONTROL,
					   .epoch = 1 }; /* no chunks: no pages */
	struct soda_peer_info info = { .address = "fuzz",
				       .local = !(who & 1),
				       .uid = who & 2 ? 12345 : geteuid(),
				       .pid = getpid() };
	struct soda_wire_welcome w = { .version = SODA_WIRE_VERSION,
				       .max_data = SODA_WIRE_MAX_DATA };
	struct soda_why why = { "" };
	void *client = NULL;

	if (p->used)
		return;
	*p = (struct program){ .base = { .ops = &peer_ops, .fd = -1, .info = info } };
	if (fuzz_service->hello(fuzz_svc, &p->base, &h, &info, &w, &client, &why) < 0)
		return;
	p->base.client = client;
	p->used = true;
}

static void finish(struct program *p)
{
	if (p->used)
		fuzz_service->gone(p->base.client, &p->base);
	p->used = false;
	if (p->ring)
		munmap(p->ring, SODA_MOVE_RING_BYTES);
	p->ring = NULL;
}

/* What the agent tells by the ring makes sense, whatever the lists were. */
static void look_at_ring(struct program *p)
{
	uint32_t told = p->ring ? atomic_load(&p->ring->told) : 0;
	struct soda_wire_notice n;

	for (; p->ring && p->told != told; p->told++) {
		soda_wire_get_notice(soda_move_ring_notice(p->ring, p->told), &n);
		MUST(told - p->told > SODA_MOVE_RING_SIZE ||
		     (n.step != 0) == (n.status == SODA_ST_OK));
	}
}

static void take_notices(struct program *p, const uint8_t *from, size_t bytes)
{
	MUST(bytes % SODA_WIRE_NOTICE_BYTES == 0);
	for (size_t at = 0; at < bytes; at += SODA_WIRE_NOTICE_BYTES) {
		struct soda_wire_notice n;
		unsigned i = 0;

		soda_wire_get_notice(from + at, &n);
		while (i < p->tickets_n && p->tickets[i] != n.ticket)
			i++;
		MUST(i < p->tickets_n);
		MUST((n.step != 0) == (n.status == SODA_ST_OK));
		p->tickets[i] = p->tickets[--p->tickets_n];
	}
}

static bool tells(int type)
{
	return (type >= SODA_MSG_MOVE_END && type <= SODA_MSG_MOVE_CANCEL) ||
	       type == SODA_MSG_MOVE_POST_PARTS || type == SODA_MSG_MOVE_FREE;
}

/* The call's result, with the length of the answer; -1: there is no such program. */
static int call(struct program *p, int type, const void *body, size_t bytes, size_t *bytes_p)
{
	struct soda_reply reply = { .body = answer, .share = { .fd = -1 } };
	struct soda_wire_frame frame = { .type = (uint8_t)type, .length = (uint32_t)bytes };
	uint8_t *copy;
	int ret = -1;

	if (!p->used || !soda_control_is_call(&frame))
		return ret;
	copy = malloc(bytes + !bytes); /* what reads beyond it is seen */
	MUST(copy);
	if (bytes)
		memcpy(copy, body, bytes);
	ret = fuzz_service->call(p->base.client, (enum soda_msg)type, copy, bytes, true, &reply);
	MUST(ret <= 0 && reply.bytes <= SODA_WIRE_MAX_CONTROL);
	if (ret == 0 && reply.share.fd >= 0 && type == SODA_MSG_MOVE_START) {
		p->ring = mmap(NULL, SODA_MOVE_RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED,
			       reply.share.fd, 0);
		MUST(p->ring != MAP_FAILED);
	}
	if (ret == 0 && reply.share.fd >= 0 && type == SODA_MSG_MOVE_ALLOC)
		p->area_fd = reply.share.fd; /* the agent's */
	look_at_ring(p);
	if (ret == 0 && p->ring && (type == SODA_MSG_MOVE_POST || type == SODA_MSG_MOVE_POST_PARTS))
		p->last_ticket = soda_wire_get_u64(copy);
	else if (ret == 0 && (type == SODA_MSG_MOVE_POST || type == SODA_MSG_MOVE_POST_PARTS)) {
		MUST(p->tickets_n < SODA_MOVE_CREDITS);
		p->last_ticket = p->tickets[p->tickets_n++] = soda_wire_get_u64(copy);
		p->put_at = 0;
	}
	if (ret == 0 && tells(type))
		take_notices(p, answer, reply.bytes);
	if (ret == 0 && type == SODA_MSG_MOVE_PART) {
		MUST(soda_wire_get_u32(answer) - 1 < SODA_PART_ENDED);
		take_notices(p, answer + sizeof(uint32_t), reply.bytes - sizeof(uint32_t));
	}
	*bytes_p = reply.bytes;
	free(copy);
	return ret;
}

static void start(struct fuzz_input *in, struct program *p)
{
	struct soda_wire_move_start s = { .version = SODA_MOVE_VERSION,
					  .token_at = (uintptr_t)token };
	uint8_t body[SODA_WIRE_MOVE_START_BYTES], how = fuzz_u8(in);
	size_t n;

	memcpy(s.token, token, sizeof(token));
	s.token[0] ^= how % 8 == 1;
	if (how % 8 == 2)
		s.token_at = 0;
	if (how % 8 == 3)
		s.token_at = how;
	s.version += how % 8 == 4;
	if (how & 8)
		s.flags = how & 16 ? how : SODA_WIRE_MOVE_RING;
	soda_wire_put_move_start(body, &s);
	call(p, SODA_MSG_MOVE_START, body, sizeof(body), &n);
}

static const char *const names[] = { "a", "b", "heat", "", "with space" };
enum { NAMES = sizeof(names) / sizeof(*names), NAME_ROOM = 16 };

/* Behind the layout; its length. */
static size_t put_name(uint8_t *at, uint8_t which)
{
	const char *name = names[which % NAMES];

	memcpy(at, name, strlen(name));
	return strlen(name);
}

static void reserve(struct fuzz_input *in, struct program *p)
{
	struct soda_wire_move_reserve r = { .bytes = fuzz_u32(in), .copies = fuzz_u8(in) };
	uint8_t how = fuzz_u8(in), body[SODA_WIRE_MOVE_RESERVE_BYTES + NAME_ROOM];
	size_t n = put_name(body + SODA_WIRE_MOVE_RESERVE_BYTES, fuzz_u8(in));

	if (!(how & 128)) /* else more than there is */
		r.bytes %= 1 << 18;
	r.mode = how & 64 ? 0400 : 0444;
	r.flags = how & 3;
	soda_wire_put_move_reserve(body, &r);
	call(p, SODA_MSG_MOVE_RESERVE, body, SODA_WIRE_MOVE_RESERVE_BYTES + n, &n);
}

static struct soda_wire_piece piece(struct fuzz_input *in)
{
	uint8_t kind = fuzz_u8(in);
	struct soda_wire_piece p = { .from = fuzz_u16(in),
				     .bytes = fuzz_u16(in),
				     .stride = fuzz_u16(in),
				     .count = fuzz_u8(in),
				     .offset = fuzz_u16(in),
				     .fill = kind & 1 ? kind : SODA_WIRE_PIECE_COPY };

	if ((kind & 0x81) == 0x80) { /* in an area, or behind its end */
		p.fill = SODA_WIRE_PIECE_AREA + (kind >> 4 & 3);
		kind |= 4;
	}

	if (kind & 2)
		p.bytes %= 64;
	if (!(kind & 4)) /* else nowhere */
		p.from = (uintptr_t)memory + p.from % MEMORY;
	if ((kind & 0x18) == 0x18)
		p.bytes <<= 48;
	if ((kind & 0x28) == 0x28)
		p.offset = UINT64_MAX - p.offset;
	if ((kind & 0x48) == 0x48)
		p.count <<= 56;
	return p;
}

static void post_as(struct fuzz_input *in, struct program *p, int type)
{
	struct soda_wire_move_post head = { .buffer = fuzz_u8(in) % 4 };
	uint8_t body[SODA_WIRE_MOVE_POST_BYTES + PIECES * SODA_WIRE_PIECE_BYTES];
	int8_t ticket = (int8_t)fuzz_u8(in);
	size_t n;

	head.ticket = p->last_ticket + (uint64_t)ticket;
	head.pieces = fuzz_u8(in) % (PIECES + 1);
	soda_wire_put_move_post(body, &head);
	for (uint32_t i = 0; i < head.pieces; i++) {
		struct soda_wire_piece next = piece(in);

		soda_wire_put_piece(body + SODA_WIRE_MOVE_POST_BYTES + i * SODA_WIRE_PIECE_BYTES,
				    &next);
	}
	call(p, type, body, SODA_WIRE_MOVE_POST_BYTES + head.pieces * SODA_WIRE_PIECE_BYTES, &n);
}

static void ring_list(struct fuzz_input *in, struct program *p)
{
	struct soda_wire_move_post head = { .buffer = fuzz_u8(in) % 20 };
	int8_t ticket = (int8_t)fuzz_u8(in);
	uint8_t pieces = fuzz_u8(in), *list;
	uint32_t posted;

	head.ticket = p->last_ticket + (uint64_t)ticket;
	head.pieces = pieces & 0x80 ? UINT32_MAX - pieces : pieces % (PIECES + 1);
	if (!p->ring)
		return;
	posted = atomic_load(&p->ring->posted);
	list = soda_move_ring_list(p->ring, posted);
	soda_wire_put_move_post(list, &head);
	for (uint32_t i = 0; i < head.pieces && i < PIECES; i++) {
		struct soda_wire_piece next = piece(in);

		soda_wire_put_piece(list + SODA_WIRE_MOVE_POST_BYTES + i * SODA_WIRE_PIECE_BYTES,
				    &next);
	}
	if (head.ticket > p->last_ticket)
		p->last_ticket = head.ticket;
	pieces = fuzz_u8(in); /* mostly one, and now and then what leaps or goes back */
	atomic_store(&p->ring->posted, posted + (pieces < 0xf0 ? 1 : pieces - 0xf8u));
	look_at_ring(p);
}

static void post(struct fuzz_input *in, struct program *p)
{
	post_as(in, p, SODA_MSG_MOVE_POST);
}

static void post_parts(struct fuzz_input *in, struct program *p)
{
	post_as(in, p, SODA_MSG_MOVE_POST_PARTS);
}

static void put(struct fuzz_input *in, struct program *p)
{
	static uint8_t body[SODA_WIRE_MOVE_PUT_BYTES + UINT16_MAX];
	int8_t ticket = (int8_t)fuzz_u8(in), at = (int8_t)fuzz_u8(in);
	struct soda_wire_move_put head = { p->last_ticket + (uint64_t)ticket,
					   p->put_at + (uint64_t)at };
	size_t n = fuzz_u16(in), ignored;

	if (n > SODA_WIRE_MAX_CONTROL - SODA_WIRE_MOVE_PUT_BYTES)
		n = SODA_WIRE_MAX_CONTROL - SODA_WIRE_MOVE_PUT_BYTES;
	soda_wire_put_move_put(body, &head);
	memset(body + SODA_WIRE_MOVE_PUT_BYTES, 0x5a, n);
	if (call(p, SODA_MSG_MOVE_PUT, body, SODA_WIRE_MOVE_PUT_BYTES + n, &ignored) == 0)
		p->put_at = head.at + n;
}

/* A flow: the body, zeros, their status; the stream's error where it is over before that. */
struct flow {
	struct soda_inflow in; /* first */
	const uint8_t *body;
	uint64_t body_left, arrives; /* of what was asked for, and of the stream */
	bool unreadable, lost;
};

static int take_flow(struct soda_inflow *in, struct iovec *iov, int n)
{
	struct flow *f = (struct flow *)in;

	for (int i = 0; i < n; i++) {
		uint64_t head = iov[i].iov_len < f->body_left ? iov[i].iov_len : f->body_left;

		if (f->lost || iov[i].iov_len > f->arrives) {
			f->lost = true;
			return -ECONNRESET;
		}
		f->arrives -= iov[i].iov_len;
		memcpy(iov[i].iov_base, f->body, head);
		memset((uint8_t *)iov[i].iov_base + head, 0x5a, iov[i].iov_len - head);
		f->body += head;
		f->body_left -= head;
	}
	return 0;
}

static int end_flow(struct soda_inflow *in)
{
	const struct flow *f = (struct flow *)in;

	return f->lost ? -ECONNRESET : f->unreadable ? -EFAULT : 0;
}

static void send_data(struct fuzz_input *in, struct program *p)
{
	uint8_t which = fuzz_u8(in);
	struct soda_wire_move_send s = { .buffer = fuzz_u8(in) % 4 };
	uint8_t body[SODA_WIRE_MOVE_SEND_BYTES + PIECES * SODA_WIRE_PIECE_BYTES + 64] = { 0 };
	struct soda_reply reply = { .body = answer, .share = { .fd = -1 } };
	struct flow f = { { .take = take_flow, .end = end_flow },
			  .body = body,
			  .unreadable = which & 1 };
	int8_t ticket = (int8_t)fuzz_u8(in), at = (int8_t)fuzz_u8(in);
	uint32_t data;
	int ret;

	s.ticket = p->last_ticket + (uint64_t)ticket;
	s.pieces = fuzz_u8(in) % (PIECES + 1);
	s.at = s.pieces ? (uint64_t)(at & 1) : p->put_at + (uint64_t)at;
	for (uint32_t i = 0; i < s.pieces; i++) {
		struct soda_wire_piece next = piece(in);

		soda_wire_put_piece(body + SODA_WIRE_MOVE_SEND_BYTES + i * SODA_WIRE_PIECE_BYTES,
				    &next);
	}
	data = fuzz_u32(in) % (1 << 17);
	f.body_left = soda_wire_move_send_bytes(s.pieces);
	f.in.left = f.arrives = f.body_left + data;
	if (which & 2)
		f.arrives /= 2;
	if (which & 4) /* more than there is, or a length that is none */
		s.pieces += which;
	soda_wire_put_move_send(body, &s);
	if (!p->used)
		return;
	ret = fuzz_service->stream(p->base.client, (enum soda_msg)SODA_MSG_MOVE_SEND, &f.in,
				   &reply);
	MUST(ret <= 0);
	/* what was taken of a refused one is not told from here: it has a ticket, or none */
	if (s.pieces && s.ticket > p->last_ticket && p->tickets_n < SODA_MOVE_CREDITS && ret == 0)
		p->tickets[p->tickets_n++] = s.ticket;
	if (ret == 0) {
		p->last_ticket = s.ticket;
		p->put_at = s.at + data;
		take_notices(p, answer, reply.bytes);
	} else {
		finish(p); /* as after a lost stream */
	}
}

static void number(struct fuzz_input *in, struct program *p)
{
	static const uint8_t types[] = { SODA_MSG_MOVE_FAIL,	SODA_MSG_MOVE_CANCEL,
					 SODA_MSG_MOVE_RELEASE, /* 64 bits up to here */
					 SODA_MSG_MOVE_END,	SODA_MSG_MOVE_MAP,
					 SODA_MSG_MOVE_AWAIT };
	uint8_t type = types[fuzz_u8(in) % sizeof(types)], body[8];
	uint64_t value = fuzz_u8(in);
	size_t n;

	if (type == SODA_MSG_MOVE_FAIL || type == SODA_MSG_MOVE_CANCEL)
		value = p->last_ticket + (uint64_t)(int8_t)value;
	if (type == SODA_MSG_MOVE_AWAIT)
		value %= WAIT_MS + 1;
	soda_wire_put_u64(body, value);
	call(p, type, body,
	     type == SODA_MSG_MOVE_END || type == SODA_MSG_MOVE_MAP || type == SODA_MSG_MOVE_AWAIT
		     ? 4
		     : 8,
	     &n);
}

static void alloc(struct fuzz_input *in, struct program *p)
{
	uint64_t bytes = (uint64_t)fuzz_u16(in) << (fuzz_u8(in) % 64);
	uint8_t body[8], word = fuzz_u8(in);
	uint64_t at = soda_move_area_tail_at(bytes);
	struct soda_move_area_tail *tail;
	size_t n;

	soda_wire_put_u64(body, bytes);
	if (call(p, SODA_MSG_MOVE_ALLOC, body, sizeof(body), &n))
		return;
	MUST(n == 4 && soda_wire_get_u32(answer) < SODA_MOVE_AREAS);
	tail = mmap(NULL, SODA_MOVE_AREA_TAIL_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, p->area_fd,
		    (off_t)at);
	MUST(tail != MAP_FAILED);
	MUST(atomic_load(&tail->stands) == 1);
	if (word > 0x80)
		atomic_store(&tail->stands, word);
	munmap(tail, SODA_MOVE_AREA_TAIL_BYTES);
}

static void free_area(struct fuzz_input *in, struct program *p)
{
	uint8_t body[4];
	size_t n;

	soda_wire_put_u32(body, fuzz_u8(in));
	call(p, SODA_MSG_MOVE_FREE, body, sizeof(body), &n);
}

/* Ranges of a region that every client has: what comes is written, or refused. */
enum { REGION = 1, REGION_BYTES = 64 << 10 };
static uint8_t region[REGION_BYTES];

static int region_check(struct soda_session *s, uint32_t id, uint64_t offset, uint64_t bytes,
			struct soda_why *why)
{
	return id == REGION && bytes && offset % SODA_WIRE_PAGE == 0 &&
			       bytes % SODA_WIRE_PAGE == 0 && offset <= REGION_BYTES &&
			       bytes <= REGION_BYTES - offset
		       ? 0
		       : -EINVAL;
}

static int region_write(struct soda_session *s, uint32_t id, uint64_t offset, uint8_t *data,
			uint64_t bytes)
{
	MUST(region_check(s, id, offset, bytes, NULL) == 0);
	memcpy(region + offset, data, bytes);
	return region[0] == 0x34 ? -EIO : 0;
}

static const struct soda_agent_regions regions = { region_check, region_write };

static void range(struct fuzz_input *in, struct program *p)
{
	struct soda_wire_move_range r = { .region = REGION + !(fuzz_u8(in) % 8),
					  .copies = fuzz_u8(in) % 4,
					  .at = fuzz_u8(in) % 17 * (uint64_t)SODA_WIRE_PAGE,
					  .bytes = fuzz_u32(in) };
	uint8_t body[SODA_WIRE_MOVE_RANGE_BYTES];
	size_t n;

	soda_wire_put_move_range(body, &r);
	call(p, SODA_MSG_MOVE_RANGE, body, sizeof(body), &n);
}

static void open_name(struct fuzz_input *in, struct program *p)
{
	uint8_t body[4 + NAME_ROOM];
	size_t n;

	soda_wire_put_u32(body, fuzz_u8(in) % (WAIT_MS + 1));
	n = put_name(body + 4, fuzz_u8(in));
	call(p, SODA_MSG_MOVE_OPEN, body, 4 + n, &n);
}

/* What a PART's state says, and the notices behind it. */
static void part(struct fuzz_input *in, struct program *p)
{
	struct soda_wire_move_part ask = { p->last_ticket - fuzz_u8(in) % 3, fuzz_u16(in), 0 };
	uint8_t body[SODA_WIRE_MOVE_PART_BYTES];
	size_t n;

	ask.timeout_ms = fuzz_u8(in) % (WAIT_MS + 1);
	soda_wire_put_move_part(body, &ask);
	call(p, SODA_MSG_MOVE_PART, body, sizeof(body), &n);
}

static int read_step(struct program *p, uint64_t step, uint64_t offset, uint32_t bytes)
{
	const struct soda_wire_move_read r = { step, offset, bytes };
	uint8_t body[SODA_WIRE_MOVE_READ_BYTES];
	size_t n = 0;
	int ret;

	soda_wire_put_move_read(body, &r);
	ret = call(p, SODA_MSG_MOVE_READ, body, sizeof(body), &n);
	MUST(ret != 0 || n == bytes);
	return ret;
}

/* What is named is later, and held: it can be read. */
static void next(struct fuzz_input *in, struct program *p)
{
	struct soda_wire_move_next ask = { .after = fuzz_u8(in) };
	uint8_t body[SODA_WIRE_MOVE_NEXT_BYTES];
	struct soda_wire_move_found found;
	size_t n;

	ask.timeout_ms = fuzz_u8(in) % (WAIT_MS + 1);
	soda_wire_put_move_next(body, &ask);
	if (call(p, SODA_MSG_MOVE_NEXT, body, sizeof(body), &n))
		return;
	MUST(soda_wire_get_move_found(answer, n, &found) == 0);
	if (!found.step)
		return;
	MUST(found.step > ask.after && found.copy < SODA_MOVE_COPIES);
	MUST(read_step(p, found.step, 0, 1) == 0);
}

static void read_any(struct fuzz_input *in, struct program *p)
{
	uint64_t step = fuzz_u8(in), offset = fuzz_u32(in);

	read_step(p, step, offset, fuzz_u32(in));
}

/* How long it may wait is at most WAIT_MS, or the script would stand still. */
static void hasten(uint8_t type, uint8_t *body, size_t bytes)
{
	size_t at = type == SODA_MSG_MOVE_NEXT ? 8 : type == SODA_MSG_MOVE_PART ? 16 : 0;

	if ((type == SODA_MSG_MOVE_AWAIT || type == SODA_MSG_MOVE_OPEN ||
	     type == SODA_MSG_MOVE_NEXT || type == SODA_MSG_MOVE_PART) &&
	    bytes >= at + 4)
		soda_wire_put_u32(body + at, body[at] % (WAIT_MS + 1));
}

static void raw(struct fuzz_input *in, struct program *p)
{
	uint8_t type = SODA_MSG_MOVE_START +
		       fuzz_u8(in) % (SODA_MSG_MOVE_LAST - SODA_MSG_MOVE_START + 1),
		body[4096];
	size_t n = fuzz_u16(in) % (sizeof(body) + 1);

	n = fuzz_take(in, body, n);
	hasten(type, body, n);
	call(p, type, body, n, &n);
}

static void finish_now(struct fuzz_input *in, struct program *p)
{
	finish(p);
}

static void step(struct fuzz_input *in)
{
	static void (*const ops[])(struct fuzz_input *, struct program *) = {
		start,	    reserve,   post,  put,	  number,    open_name,
		next,	    read_any,  raw,   finish_now, send_data, part,
		post_parts, ring_list, alloc, free_area,  range
	};
	uint8_t what = fuzz_u8(in) % 18;
	struct program *p = &programs[fuzz_u8(in) % PROGRAMS];

	if (what == 0)
		hello(p, fuzz_u8(in));
	else
		ops[what - 1](in, p);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	fuzz_quiet();
	memset(memory, 0x33, sizeof(memory));
	fuzz_agent_start("tcp://127.0.0.1:1", false, BUDGET,
			 0); /* nobody there: no pages are asked */
	((struct soda_dpu *)fuzz_svc)->sessions.regions = &regions;
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct fuzz_input in = { data, bytes };

	for (int i = 0; i < OPS_MAX && in.left; i++)
		step(&in);
	for (struct program *p = programs; p < programs + PROGRAMS; p++)
		finish(p);
	fuzz_agent_await_idle();
	return 0;
}
