/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/*
 * Vegas (Brakmo and Peterson, "TCP Vegas: End to end congestion avoidance on a global Internet", 1995) as in Linux:
 * once per round trip it compares the window with the window that the minimum RTT would need. From `alpha` to `beta`
 * packets of the window are meant to wait in the queue. During recovery it behaves like Reno.
 */
#include "skyhop_cc.h"

#define NO_RTT 0x7fffffffU
#define LEAST_SAMPLES 3 /* Linux: fewer samples may all come from delayed ACKs */

#define VEGAS_PARAMS(P)                                                                                   \
	P(alpha, 1, 2, 0, 1000, "packets", "cwnd grows below this many queued packets")                  \
	P(beta, 1, 4, 0, 1000, "packets", "cwnd shrinks above this many queued packets")                 \
	P(gamma, 1, 1, 0, 1000, "packets", "slow start ends above this many queued packets")
SKYHOP_PARAMS(VEGAS_PARAMS);

struct vegas {
	u32 base_rtt_us;   /* minimum of the connection; NO_RTT: no sample yet */
	u32 round_rtt_us;  /* minimum of this round trip */
	u32 round_samples;
	u32 round_end_seq;
	bool is_on; /* not in recovery */
};
SKYHOP_STATE(struct vegas);

static void round_begins(struct sock *sk, struct vegas *vegas)
{
	vegas->round_end_seq = tcp_sk(sk)->snd_nxt;
	vegas->round_samples = 0;
	vegas->round_rtt_us = NO_RTT;
}

static void start(struct sock *sk, struct vegas *vegas)
{
	vegas->base_rtt_us = NO_RTT;
	vegas->is_on = true;
	round_begins(sk, vegas);
}

SKYHOP_HOOK(void, vegas_init, struct sock *sk)
{
	struct vegas *vegas = skyhop_state_create(sk);

	if (vegas)
		start(sk, vegas);
}

SKYHOP_HOOK(void, vegas_set_state, struct sock *sk, u8 new_state)
{
	struct vegas *vegas = skyhop_state(sk);

	if (!vegas)
		return;
	vegas->is_on = new_state == TCP_CA_Open;
	if (vegas->is_on)
		round_begins(sk, vegas);
}

/* Linux: after idle the path may have changed, so all measurements begin again. */
SKYHOP_HOOK(void, vegas_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct vegas *vegas = skyhop_state(sk);

	if (vegas && (event == CA_EVENT_TX_START || event == CA_EVENT_CWND_RESTART))
		start(sk, vegas);
}

SKYHOP_HOOK(void, vegas_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct vegas *vegas = skyhop_state(sk);
	u32 rtt_us;

	if (!vegas || sample->rtt_us < 0)
		return;
	rtt_us = (u32)sample->rtt_us + 1; /* never 0 */
	vegas->base_rtt_us = min_u32(vegas->base_rtt_us, rtt_us);
	vegas->round_rtt_us = min_u32(vegas->round_rtt_us, rtt_us);
	vegas->round_samples++;
}

static void lower_ssthresh(struct tcp_sock *tp)
{
	/* at least two packets (RFC 5681 3.1, equation 4) */
	tp->snd_ssthresh = max_u32(min_u32(tp->snd_ssthresh, tp->snd_cwnd), 2);
}

/* Compare the window once per round trip (Brakmo and Peterson 3.2, 3.3): diff is the part of the window that waits
 * in the queue, in packets. */
static void compare(struct sock *sk, const struct vegas *vegas, u32 acked)
{
	struct tcp_sock *tp = tcp_sk(sk);
	u64 cwnd = tp->snd_cwnd;
	u64 diff = cwnd * (vegas->round_rtt_us - vegas->base_rtt_us) / vegas->base_rtt_us;

	if (tcp_in_slow_start(tp)) {
		if (diff <= skyhop_param(sk, gamma)) {
			tcp_slow_start(tp, acked);
		} else {
			/* reduce to what the path holds without a queue, rounded up */
			tp->snd_cwnd = (u32)min_u64(cwnd, cwnd * vegas->base_rtt_us / vegas->round_rtt_us + 1);
			lower_ssthresh(tp);
		}
	} else if (diff > skyhop_param(sk, beta)) {
		tp->snd_cwnd--;
		lower_ssthresh(tp);
	} else if (diff < skyhop_param(sk, alpha)) {
		tp->snd_cwnd++;
	}
	tp->snd_cwnd = min_u32(max_u32(tp->snd_cwnd, 2), tp->snd_cwnd_clamp);
	/* Linux: the threshold stays high enough to speed up growth after the next loss */
	tp->snd_ssthresh = max_u32(tp->snd_ssthresh, tp->snd_cwnd / 2 + tp->snd_cwnd / 4);
}

SKYHOP_HOOK(void, vegas_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct vegas *vegas = skyhop_state(sk);
	struct tcp_sock *tp = tcp_sk(sk);

	if (!vegas || !vegas->is_on) {
		tcp_reno_cong_avoid(sk, ack, acked);
	} else if (after(ack, vegas->round_end_seq)) {
		if (vegas->round_samples < LEAST_SAMPLES)
			tcp_reno_cong_avoid(sk, ack, acked);
		else
			compare(sk, vegas, acked);
		round_begins(sk, vegas);
	} else if (tcp_in_slow_start(tp)) {
		tcp_slow_start(tp, acked);
	}
}

/* Half the window (RFC 5681 3.1, equation 4) */
SKYHOP_HOOK(u32, vegas_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

/* Undo of a spurious reduction (RFC 4015 3.2) */
SKYHOP_HOOK(u32, vegas_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_MODULE(vegas, "Vegas: a few queued packets, from delay (Brakmo and Peterson)",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(vegas_init),
	      .ssthresh = SKYHOP_FN(vegas_ssthresh),
	      .cong_avoid = SKYHOP_FN(vegas_cong_avoid),
	      .set_state = SKYHOP_FN(vegas_set_state),
	      .cwnd_event = SKYHOP_FN(vegas_cwnd_event),
	      .pkts_acked = SKYHOP_FN(vegas_pkts_acked),
	      .undo_cwnd = SKYHOP_FN(vegas_undo_cwnd));
