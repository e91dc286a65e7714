/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* NewReno's window as ns-3 grows it: by acknowledgements, however many segments each covers. */
#include "skyhop_cc.h"

SKYHOP_NO_PARAMS;
SKYHOP_NO_STATE;

/* Half the window (RFC 5681 3.1, equation 4) */
SKYHOP_HOOK(u32, ns3_newreno_ssthresh, struct sock *sk)
{
	return tcp_reno_ssthresh(sk);
}

/* Growth by one segment per acknowledgement in slow start, and by 1/cwnd after it */
SKYHOP_HOOK(void, ns3_newreno_cong_avoid, struct sock *sk, u32 ack, u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked ? 1 : 0);
}

/* Undo of a spurious reduction (RFC 4015 3.2) */
SKYHOP_HOOK(u32, ns3_newreno_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SKYHOP_MODULE(ns3_newreno, "NewReno that grows by acknowledgement, as in ns-3",
	      .flags = TCP_CONG_NON_RESTRICTED,
	      .ssthresh = SKYHOP_FN(ns3_newreno_ssthresh),
	      .cong_avoid = SKYHOP_FN(ns3_newreno_cong_avoid),
	      .undo_cwnd = SKYHOP_FN(ns3_newreno_undo_cwnd));
