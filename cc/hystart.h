/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * HyStart (Ha and Rhee, "Taming the elephants: New TCP slow start", 2011) as in Linux, with both of its triggers:
 * slow start ends before the first loss. For any algorithm with a slow start: call hystart_restart() when slow start
 * begins, and hystart_on_ack() in pkts_acked during it, which sets ssthresh to the window when slow start should
 * end.
 */
#ifndef SKYHOP_HYSTART_H
#define SKYHOP_HYSTART_H

#include "pacing.h"

#define HYSTART_ACK_TRAIN 1
#define HYSTART_DELAY 2
#define HYSTART_MIN_SAMPLES 8

struct hystart_config {
	u64 is_on;
	u64 detect;       /* HYSTART_ACK_TRAIN, HYSTART_DELAY or both */
	u64 low_window;   /* packets: HyStart does not act below this window */
	u64 ack_delta_us; /* ACKs closer than this belong to one train */
	u64 all_samples;  /* the delay trigger uses the minimum RTT of a whole round, not of its first samples */
};

struct hystart {
	struct hystart_config config;
	/* current round trip of slow start */
	u32 round_start_us;
	u32 last_ack_us;
	u32 round_end_seq;
	u32 round_rtt_us; /* minimum RTT of the round's first samples */
	u8 round_samples;
	bool is_done;
};

static inline void hystart_round_begins(struct sock *sk, struct hystart *hystart)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	hystart->round_start_us = (u32)tp->tcp_mstamp;
	hystart->last_ack_us = (u32)tp->tcp_mstamp;
	hystart->round_end_seq = tp->snd_nxt;
	hystart->round_rtt_us = ~0U;
	hystart->round_samples = 0;
}

static inline void hystart_restart(struct sock *sk, struct hystart *hystart)
{
	hystart->is_done = false;
	hystart_round_begins(sk, hystart);
}

static inline void hystart_ends_slow_start(struct sock *sk, struct hystart *hystart)
{
	hystart->is_done = true;
	tcp_sk(sk)->snd_ssthresh = tcp_sk(sk)->snd_cwnd;
}

/* ACK train trigger (Ha and Rhee 3.2): ACKs without a gap for as long as the one-way delay show that the path is
 * full. Paced packets are spread over half an RTT anyway, so a whole RTT is required there. */
static inline void hystart_ack_train(struct sock *sk, struct hystart *hystart, u32 least_rtt_us)
{
	u32 now = (u32)tcp_sk(sk)->tcp_mstamp;
	u32 longest = least_rtt_us + pacing_four_bursts_us(sk);

	if ((s32)(now - hystart->last_ack_us) > (s32)hystart->config.ack_delta_us)
		return;
	hystart->last_ack_us = now;
	if (sk->sk_pacing_status == SK_PACING_NONE)
		longest /= 2;
	if ((s32)(now - hystart->round_start_us) > (s32)longest)
		hystart_ends_slow_start(sk, hystart);
}

/* Delay trigger (Ha and Rhee 3.3): the round's first RTTs exceed the minimum by an eighth (4 to 16 ms), so a queue
 * builds up. */
static inline void hystart_delay(struct sock *sk, struct hystart *hystart, u32 least_rtt_us, u32 rtt_us)
{
	u32 margin_us = clamp_u32(least_rtt_us / 8, 4000, 16000);

	if (hystart->config.all_samples || hystart->round_samples < HYSTART_MIN_SAMPLES)
		hystart->round_rtt_us = min_u32(hystart->round_rtt_us, rtt_us);
	if (hystart->round_samples < HYSTART_MIN_SAMPLES)
		hystart->round_samples++;
	else if (hystart->round_rtt_us > least_rtt_us + margin_us)
		hystart_ends_slow_start(sk, hystart);
}

/* `least_rtt_us` is the connection's minimum RTT, `rtt_us` the RTT of this ACK. */
static inline void hystart_on_ack(struct sock *sk, struct hystart *hystart, u32 least_rtt_us, u32 rtt_us)
{
	const struct tcp_sock *tp = tcp_sk(sk);

	if (!hystart->config.is_on || hystart->is_done || !tcp_in_slow_start(tp))
		return;
	/* Linux (up to 6.13): a round ends with the first ACK beyond its end, not with the ACK that reaches it. */
	if (after(tp->snd_una, hystart->round_end_seq))
		hystart_round_begins(sk, hystart);
	if (tp->snd_cwnd < hystart->config.low_window)
		return;
	if (hystart->config.detect & HYSTART_ACK_TRAIN)
		hystart_ack_train(sk, hystart, least_rtt_us);
	if (hystart->config.detect & HYSTART_DELAY)
		hystart_delay(sk, hystart, least_rtt_us, rtt_us);
}

#endif
