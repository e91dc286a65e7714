/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Copa (Arun and Balakrishnan, "Copa: Practical delay-based congestion control for the Internet", NSDI 2018, cited as
 * "Copa"): the rate is steered towards 1 / (delta * queueing delay) packets per second, so that about 1/delta packets
 * of each flow wait. Where the queue does not empty now and then somebody else fills it: then (competitive mode) 1/delta
 * grows and halves as Reno's window does.
 *
 * paper   Queueing delay is what the standing RTT, the least of half a smoothed RTT, has above the least of ten seconds.
 * kernel  As the public module for Linux has it, which follows Meta's mvfst: what the latest RTT has above the least, which
 *         begins anew with any sample once it is ten seconds old, and pacing by the smoothed RTT. (A version of its source
 *         takes the smoothed RTT for the latest, too; what it did in tests/linux swings faster than that can.) A window that is
 *         not used grows, and undo gives back the largest before any recovery. The module has no competitive mode,
 *         delta = 0.03125 and least_cwnd = 4. It loses fractions of packets; here they count.
 */
#include "minmax.h"
#include "pacing.h"

enum copa_variant { PAPER, KERNEL };

#define COPA_ONE 1024
#define COPA_PARAMS(P)                                                                                    \
	P(delta, COPA_ONE, 512, 1, COPA_ONE, "", "1/delta packets are meant to wait in the queue")       \
	P(variant, 1, PAPER, PAPER, KERNEL, "paper|kernel", "how the queueing delay is measured")        \
	P(competitive, 1, 1, 0, 1, "", "1: 1/delta grows where others keep the queue full")              \
	P(min_rtt_window, 1, 10000, 100, 1000000, "ms", "how long the least RTT counts")                 \
	P(least_cwnd, 1, 2, 1, 1000, "packets", "the smallest window")
SKYHOP_PARAMS(COPA_PARAMS);

#define SAME_ROUNDS 3       /* Copa 2.1: so many round trips one way before the velocity doubles */
#define MAX_VELOCITY 32768  /* beyond any window */
#define MAX_ACKED 256       /* of one ACK: the module's bound */
#define NEARLY_EMPTY 10     /* Copa 2.2: below a tenth of the RTT's swing */
#define SWING_RTTS 4
#define EMPTY_EVERY_RTTS 5
#define MAX_INVERSE (COPA_ONE << 14)
#define FRACTION_SHIFT 16   /* of a packet of the window */

enum copa_direction { NOWHERE, UP, DOWN };

struct copa {
	struct minmax_filter least_rtt;    /* of min_rtt_window, over ms: paper */
	struct minmax_filter greatest_rtt; /* of four round trips, over us */
	u64 half_began_us;                 /* 0: no RTT was seen yet */
	u64 direction_at_us;               /* 0: not compared yet */
	u64 direction_cwnd;                /* the window then, with its fraction */
	u64 doubled_at_us;                 /* in slow start; 0: not yet */
	u64 emptied_at_us;                 /* when the queue was last nearly empty */
	u64 raised_at_us;                  /* when 1/delta last grew, or halved */
	u32 min_rtt_us;
	u32 min_rtt_at;       /* jiffies: kernel */
	u32 half_rtt_us[2];   /* the least of each half of the standing RTT's window; ~0: none */
	u32 inverse;          /* 1/delta times COPA_ONE */
	u32 velocity;
	u32 fraction;         /* of a packet, that the window has beyond snd_cwnd */
	u32 prior_cwnd;
	u8 half;
	u8 direction;         /* enum copa_direction */
	u8 same_rounds;       /* it has been the same for so many */
	bool slow_start;
};
SKYHOP_STATE(struct copa);

static u32 smoothed_rtt_us(const struct tcp_sock *tp)
{
	return tp->srtt_us ? max_u32(tp->srtt_us >> 3, 1) : USEC_PER_MSEC;
}

static u32 inverse_of_delta(struct sock *sk)
{
	return (u32)(COPA_ONE * COPA_ONE / max_u64(skyhop_param(sk, delta), 1));
}

/* ---- Round-trip times ---- */

/* The module's way: a sample that is ten seconds old gives way to any other. */
static void restart_min_rtt(struct sock *sk, struct copa *copa, u32 rtt_us)
{
	u32 now = skyhop_jiffies(sk);
	u32 window = (u32)(skyhop_param(sk, min_rtt_window) * skyhop_hz(sk) / 1000);

	if (copa->half_began_us && rtt_us > copa->min_rtt_us && !after(now, copa->min_rtt_at + window))
		return;
	copa->min_rtt_us = rtt_us;
	copa->min_rtt_at = now;
}

static void take_min_rtt(struct sock *sk, struct copa *copa, u32 rtt_us)
{
	u32 now_ms = (u32)(tcp_sk(sk)->tcp_mstamp / USEC_PER_MSEC);

	if (skyhop_param(sk, variant) == KERNEL)
		restart_min_rtt(sk, copa, rtt_us);
	else if (!copa->half_began_us)
		copa->min_rtt_us = minmax_restart(&copa->least_rtt, now_ms, rtt_us);
	else
		copa->min_rtt_us = minmax_running_min(&copa->least_rtt, (u32)skyhop_param(sk, min_rtt_window),
						      now_ms, rtt_us);
}

/* Copa 2: the least of half a smoothed RTT, so that a few late ACKs do not count. Kept in two halves: the window is
 * between a quarter and a half of an RTT long. */
static u32 take_standing_rtt(struct copa *copa, u64 now_us, u32 srtt_us, u32 rtt_us)
{
	u64 half_us = max_u32(srtt_us / 4, 1);
	u64 halves;

	if (!copa->half_began_us) {
		copa->half_began_us = now_us;
		copa->half_rtt_us[0] = copa->half_rtt_us[1] = ~0U;
	}
	halves = (now_us - copa->half_began_us) / half_us;
	if (halves) {
		copa->half_began_us += halves * half_us;
		copa->half ^= halves & 1;
		copa->half_rtt_us[copa->half & 1] = ~0U;
		if (halves > 1)
			copa->half_rtt_us[!(copa->half & 1)] = ~0U;
	}
	copa->half_rtt_us[copa->half & 1] = min_u32(copa->half_rtt_us[copa->half & 1], rtt_us);
	return min_u32(copa->half_rtt_us[0], copa->half_rtt_us[1]);
}

/* ---- Competitive mode: Copa 2.2 ---- */

/* With Copa alone the queue is nearly empty at least every five round trips. */
static void look_for_others(struct copa *copa, u64 now_us, u32 srtt_us, u32 rtt_us, u32 queue_us)
{
	u32 greatest_us;

	if (!copa->emptied_at_us) {
		copa->emptied_at_us = now_us;
		minmax_restart(&copa->greatest_rtt, (u32)now_us, rtt_us);
	}
	greatest_us = minmax_running_max(&copa->greatest_rtt, SWING_RTTS * srtt_us, (u32)now_us, rtt_us);
	if ((u64)queue_us * NEARLY_EMPTY <= greatest_us - min_u32(copa->min_rtt_us, greatest_us))
		copa->emptied_at_us = now_us;
}

/* 1/delta: a packet more in each round trip while others are there, at once back to what it was meant to be. */
static void compete(struct sock *sk, struct copa *copa, u64 now_us, u32 srtt_us)
{
	if (now_us - copa->emptied_at_us <= (u64)EMPTY_EVERY_RTTS * srtt_us) {
		copa->inverse = inverse_of_delta(sk);
		copa->raised_at_us = now_us;
	} else if (now_us - copa->raised_at_us >= srtt_us) {
		copa->inverse = min_u32(copa->inverse + COPA_ONE, MAX_INVERSE);
		copa->raised_at_us = now_us;
	}
}

/* ---- The window ---- */

static u64 exact_cwnd(struct sock *sk, const struct copa *copa)
{
	return ((u64)tcp_sk(sk)->snd_cwnd << FRACTION_SHIFT) + copa->fraction;
}

static void set_exact_cwnd(struct sock *sk, struct copa *copa, u64 cwnd)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 least = skyhop_param(sk, least_cwnd) << FRACTION_SHIFT;
	u64 most = (u64)tp->snd_cwnd_clamp << FRACTION_SHIFT;

	cwnd = min_u64(max_u64(cwnd, least), most);
	tp->snd_cwnd = (u32)(cwnd >> FRACTION_SHIFT);
	copa->fraction = (u32)(cwnd & ((1U << FRACTION_SHIFT) - 1));
}

static void turn(struct sock *sk, struct copa *copa, u64 now_us, u8 direction)
{
	copa->direction = direction;
	copa->velocity = 1;
	copa->same_rounds = 0;
	copa->direction_at_us = now_us;
	copa->direction_cwnd = exact_cwnd(sk, copa);
}

/* Copa 2.1: once per round trip, whether the window went the same way as before. */
static void check_direction(struct sock *sk, struct copa *copa, u64 now_us, u32 srtt_us)
{
	u8 direction;

	if (!copa->direction_at_us) {
		turn(sk, copa, now_us, NOWHERE);
		return;
	}
	if (now_us - copa->direction_at_us < srtt_us)
		return;
	direction = exact_cwnd(sk, copa) > copa->direction_cwnd ? UP : DOWN;
	if (direction != copa->direction) {
		turn(sk, copa, now_us, direction);
		return;
	}
	copa->same_rounds = (u8)min_u32(copa->same_rounds + 1U, SAME_ROUNDS);
	if (copa->same_rounds == SAME_ROUNDS)
		copa->velocity = min_u32(copa->velocity * 2, MAX_VELOCITY);
	copa->direction_at_us = now_us;
	copa->direction_cwnd = exact_cwnd(sk, copa);
}

/* Copa 2: velocity / delta packets per round trip. */
static u64 step(struct sock *sk, const struct copa *copa, u32 acked)
{
	u64 packets = (u64)min_u32(max_u32(acked, 1), MAX_ACKED) * copa->velocity * copa->inverse;

	/* 8, 15 and 24 bits: FRACTION_SHIFT fits beside them */
	return (packets << FRACTION_SHIFT) / ((u64)COPA_ONE * max_u32(tcp_sk(sk)->snd_cwnd, 1));
}

/* RFC 7661 4.3: a window that is not used does not grow. The module's does. */
static bool may_grow(struct sock *sk)
{
	return skyhop_param(sk, variant) == KERNEL || tcp_is_cwnd_limited(sk);
}

/* Copa 2.1: twice per round trip until the target is exceeded for the first time. */
static void start_slowly(struct sock *sk, struct copa *copa, u64 now_us, u32 srtt_us)
{
	if (copa->doubled_at_us && now_us - copa->doubled_at_us <= srtt_us)
		return;
	if (copa->doubled_at_us && may_grow(sk))
		set_exact_cwnd(sk, copa, 2 * exact_cwnd(sk, copa));
	copa->doubled_at_us = now_us;
}

/* Towards the target from either side. A turn counts at once, or the velocity would carry the window on. */
static void move(struct sock *sk, struct copa *copa, u64 now_us, u32 acked, u8 direction)
{
	u64 cwnd = exact_cwnd(sk, copa);
	u64 by;

	if (copa->direction != direction && copa->velocity > 1)
		turn(sk, copa, now_us, direction);
	by = direction == UP && !may_grow(sk) ? 0 : step(sk, copa, acked);
	set_exact_cwnd(sk, copa, direction == UP ? cwnd + by : cwnd - min_u64(by, cwnd));
}

/* Two windows per round trip: bursts are spread out, and the window is what limits. */
static void pace(struct sock *sk, u32 rtt_us)
{
	u64 bytes = (u64)tcp_sk(sk)->snd_cwnd * tcp_sk(sk)->mss_cache;

	pacing_set_rate(sk, max_u64(2 * bytes * USEC_PER_SEC / rtt_us, 1));
}

static void on_rtt(struct sock *sk, struct copa *copa, u32 rtt_us, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 now_us = tp->tcp_mstamp;
	u32 srtt_us = smoothed_rtt_us(tp);
	bool is_kernel = skyhop_param(sk, variant) == KERNEL;
	u32 standing_us, queue_us;
	bool is_below;

	take_min_rtt(sk, copa, rtt_us);
	standing_us = take_standing_rtt(copa, now_us, srtt_us, rtt_us);
	if (standing_us < copa->min_rtt_us)
		return;
	queue_us = (is_kernel ? rtt_us : standing_us) - copa->min_rtt_us;
	if (skyhop_param(sk, competitive)) {
		look_for_others(copa, now_us, srtt_us, rtt_us, queue_us);
		compete(sk, copa, now_us, srtt_us);
	}
	/* cwnd / standing <= 1 / (delta * queue) */
	is_below = (u64)tp->snd_cwnd * queue_us <= (u64)copa->inverse * standing_us / COPA_ONE;
	if (!is_below)
		copa->slow_start = false;
	if (copa->slow_start) {
		start_slowly(sk, copa, now_us, srtt_us);
	} else {
		check_direction(sk, copa, now_us, srtt_us);
		move(sk, copa, now_us, acked, is_below ? UP : DOWN);
	}
	pace(sk, is_kernel ? srtt_us : standing_us);
}

/* ---- The hooks ---- */

SKYHOP_HOOK(void, copa_init, struct sock *sk)
{
	struct copa *copa = skyhop_state_create(sk);

	if (!copa)
		return;
	*copa = (struct copa){ .slow_start = true, .velocity = 1, .inverse = inverse_of_delta(sk) };
	copa->prior_cwnd = tcp_sk(sk)->snd_cwnd;
	tcp_sk(sk)->snd_ssthresh = TCP_INFINITE_SSTHRESH;
	pace(sk, smoothed_rtt_us(tcp_sk(sk)));
	pacing_request(sk);
}

SKYHOP_HOOK(void, copa_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct copa *copa = skyhop_state(sk);

	(void)ack;
	(void)flag;
	if (copa && rs->rtt_us >= 0 && !rs->is_ack_delayed)
		on_rtt(sk, copa, max_u32((u32)rs->rtt_us, 1), rs->acked_sacked);
}

/* What undo gives back: the window before this recovery or, as the module has it, before any. */
static u32 prior_cwnd(struct sock *sk, const struct copa *copa)
{
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	return skyhop_param(sk, variant) == KERNEL ? max_u32(copa->prior_cwnd, cwnd) : cwnd;
}

/* Copa 2.2: in competition a loss halves 1/delta, once per round trip; else it means nothing. */
SKYHOP_HOOK(u32, copa_ssthresh, struct sock *sk)
{
	struct copa *copa = skyhop_state(sk);

	if (copa) {
		copa->prior_cwnd = prior_cwnd(sk, copa);
		copa->inverse = max_u32(copa->inverse / 2, inverse_of_delta(sk));
		copa->raised_at_us = tcp_sk(sk)->tcp_mstamp;
	}
	return tcp_sk(sk)->snd_ssthresh;
}

/* Nothing is known of the path after a timeout. The module goes on as if nothing had happened. */
SKYHOP_HOOK(void, copa_set_state, struct sock *sk, u8 new_state)
{
	struct copa *copa = skyhop_state(sk);

	if (!copa || new_state != TCP_CA_Loss || skyhop_param(sk, variant) == KERNEL)
		return;
	copa->slow_start = true;
	copa->doubled_at_us = 0;
	turn(sk, copa, tcp_sk(sk)->tcp_mstamp, NOWHERE);
}

SKYHOP_HOOK(u32, copa_undo_cwnd, struct sock *sk)
{
	struct copa *copa = skyhop_state(sk);

	return copa ? max_u32(tcp_sk(sk)->snd_cwnd, copa->prior_cwnd) : tcp_sk(sk)->snd_cwnd;
}

/* Linux: as for BBR, what is in flight, the same again for recovery, and one for the next round. */
SKYHOP_HOOK(u32, copa_sndbuf_expand, struct sock *sk)
{
	(void)sk;
	return 3;
}

SKYHOP_MODULE(copa, "Copa: so many packets in the queue, by delay; more among those that fill it",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(copa_init),
	      .ssthresh = SKYHOP_FN(copa_ssthresh),
	      .cong_control = SKYHOP_FN(copa_cong_control),
	      .set_state = SKYHOP_FN(copa_set_state),
	      .undo_cwnd = SKYHOP_FN(copa_undo_cwnd),
	      .sndbuf_expand = SKYHOP_FN(copa_sndbuf_expand));
