/* SPDX-License-Identifier: MIT OR GPL-2.0 */
/* Reno with a hook that nobody calls. */
#include "skyhop_cc.h"

SKYHOP_NO_PARAMS;
SKYHOP_NO_STATE;

SKYHOP_HOOK(u64, info_get_info, struct sock *sk, u32 ext, int *attr, void *info)
{
	(void)sk;
	(void)ext;
	(void)attr;
	(void)info;
	return 0;
}

SKYHOP_MODULE(info, "Reno that tells of itself",
	      .ssthresh = SKYHOP_FN(tcp_reno_ssthresh),
	      .cong_avoid = SKYHOP_FN(tcp_reno_cong_avoid),
	      .undo_cwnd = SKYHOP_FN(tcp_reno_undo_cwnd),
	      .get_info = SKYHOP_FN(info_get_info));
