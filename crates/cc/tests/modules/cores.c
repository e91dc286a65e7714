/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Both cores in one module: BBR until the first loss, then CUBIC's window at BBR's pace. A filter for the minimum
 * RTT of two seconds is reported by undo_cwnd. */
#include "bbr_core.h"
#include "cubic_core.h"

#define CORES_PARAMS(P) \
	CUBIC_PARAMS(P) \
	BBR_PARAMS(P, 10000)
SKYHOP_PARAMS(CORES_PARAMS);

struct cores {
	struct cubic cubic;
	struct bbr bbr;
	struct minmax_filter least_rtt;
	bool has_lost;
};
SKYHOP_STATE(struct cores);

SKYHOP_HOOK(void, cores_init, struct sock *sk)
{
	struct cores *cores = skyhop_state_create(sk);

	if (!cores)
		return;
	cores->has_lost = false;
	minmax_restart(&cores->least_rtt, skyhop_jiffies(sk), ~0U);
	cubic_start(sk, &cores->cubic, &CUBIC_CONFIG);
	bbr_start(sk, &cores->bbr, &BBR_CONFIG);
}

SKYHOP_HOOK(u32, cores_ssthresh, struct sock *sk)
{
	struct cores *cores = skyhop_state(sk);

	if (!cores)
		return tcp_reno_ssthresh(sk);
	cores->has_lost = true;
	bbr_on_loss(sk, &cores->bbr);
	return cubic_curve_reduced(sk, &cores->cubic.curve);
}

SKYHOP_HOOK(void, cores_cong_control, struct sock *sk, u32 ack, int flag, const struct rate_sample *rs)
{
	struct cores *cores = skyhop_state(sk);
	u32 cwnd = tcp_sk(sk)->snd_cwnd;

	(void)ack;
	if (!cores)
		return;
	bbr_on_ack(sk, &cores->bbr, rs);
	if (!cores->has_lost || !(flag & FLAG_DATA_ACKED))
		return;
	tcp_sk(sk)->snd_cwnd = cwnd;
	cubic_grow(sk, &cores->cubic, rs->acked_sacked, 1);
}

SKYHOP_HOOK(void, cores_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct cores *cores = skyhop_state(sk);

	if (!cores || sample->rtt_us < 0)
		return;
	cubic_measure(sk, &cores->cubic, sample);
	minmax_running_min(&cores->least_rtt, 2 * skyhop_hz(sk), skyhop_jiffies(sk), max_u32((u32)sample->rtt_us, 1));
}

SKYHOP_HOOK(u32, cores_undo_cwnd, struct sock *sk)
{
	struct cores *cores = skyhop_state(sk);

	return cores ? cores->least_rtt.best.v : tcp_reno_undo_cwnd(sk);
}

SKYHOP_HOOK(void, cores_set_state, struct sock *sk, u8 new_state)
{
	struct cores *cores = skyhop_state(sk);

	if (cores)
		bbr_on_state(sk, &cores->bbr, new_state);
}

SKYHOP_HOOK(void, cores_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct cores *cores = skyhop_state(sk);

	if (!cores)
		return;
	bbr_on_event(sk, &cores->bbr, event);
	cubic_curve_skip_idle(sk, &cores->cubic.curve, event);
}

SKYHOP_MODULE(cores, "BBR and CUBIC in one module",
	      .init = SKYHOP_FN(cores_init),
	      .ssthresh = SKYHOP_FN(cores_ssthresh),
	      .cong_control = SKYHOP_FN(cores_cong_control),
	      .pkts_acked = SKYHOP_FN(cores_pkts_acked),
	      .set_state = SKYHOP_FN(cores_set_state),
	      .cwnd_event = SKYHOP_FN(cores_cwnd_event),
	      .undo_cwnd = SKYHOP_FN(cores_undo_cwnd));
