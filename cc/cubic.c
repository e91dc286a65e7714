/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* CUBIC (RFC 9438) as Linux runs it. */
#include "cubic_core.h"

SKYHOP_PARAMS(CUBIC_PARAMS);
SKYHOP_STATE(struct cubic);

SKYHOP_HOOK(void, cubic_init, struct sock *sk)
{
	struct cubic *cubic = skyhop_state_create(sk);

	if (cubic)
		cubic_start(sk, cubic, &CUBIC_CONFIG);
}

SKYHOP_HOOK(void, cubic_set_state, struct sock *sk, u8 new_state)
{
	struct cubic *cubic = skyhop_state(sk);

	if (cubic && new_state == TCP_CA_Loss)
		cubic_forget(sk, cubic);
}

SKYHOP_HOOK(void, cubic_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct cubic *cubic = skyhop_state(sk);

	if (cubic)
		cubic_curve_skip_idle(sk, &cubic->curve, event);
}

SKYHOP_HOOK(u32, cubic_ssthresh, struct sock *sk)
{
	struct cubic *cubic = skyhop_state(sk);

	return cubic ? cubic_curve_reduced(sk, &cubic->curve) : tcp_reno_ssthresh(sk);
}

/* Undo of a spurious reduction (RFC 9438 4.9) */
SKYHOP_HOOK(u32, cubic_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_HOOK(void, cubic_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	struct cubic *cubic = skyhop_state(sk);

	(void)ack;
	if (cubic)
		cubic_grow(sk, cubic, acked, 1);
}

SKYHOP_HOOK(void, cubic_pkts_acked, struct sock *sk, const struct ack_sample *sample)
{
	struct cubic *cubic = skyhop_state(sk);

	if (cubic)
		cubic_measure(sk, cubic, sample);
}

SKYHOP_MODULE(cubic, "CUBIC with HyStart (RFC 9438), Linux's default",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .init = SKYHOP_FN(cubic_init),
	      .ssthresh = SKYHOP_FN(cubic_ssthresh),
	      .cong_avoid = SKYHOP_FN(cubic_cong_avoid),
	      .set_state = SKYHOP_FN(cubic_set_state),
	      .cwnd_event = SKYHOP_FN(cubic_cwnd_event),
	      .pkts_acked = SKYHOP_FN(cubic_pkts_acked),
	      .undo_cwnd = SKYHOP_FN(cubic_undo_cwnd));
