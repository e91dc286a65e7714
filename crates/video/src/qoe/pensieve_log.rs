//! Pensieve's QoE_log (Mao et al. 2017, table 1): ln(R / Rmin) - 2.66 T - |d|. 2.66 is ln(Rmax / Rmin) of
//! Pensieve's film to two decimals; for other films their own value is used.

use super::{Terms, logs, top};
use crate::Film;

pub(super) fn terms(film: &Film) -> Result<Terms, String> {
    let qualities = logs(film);
    let stall_per_s = (top(&qualities) * 100.0).round() / 100.0;
    Ok(Terms { stall_per_s, change: 1.0, qualities })
}
