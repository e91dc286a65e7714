//! SatPipe's logarithmic QoE: q(R) = ln(R / Rmin), a second of stall costs ln(Rmax), or ln(2 Rmax). The paper
//! does not state the unit of Rmax: here it is Mbit/s, as in SatPipe's linear QoE. With an Rmax below 1
//! Mbit/s the cost would be negative and reward stalls; such films are refused.

use super::{Preference, Terms, logs, megabits, top};
use crate::Film;

pub(super) fn terms(film: &Film, preference: Preference) -> Result<Terms, String> {
    let stall_per_s = (preference.stalls * top(&megabits(film))).ln();
    if stall_per_s <= 0.0 {
        return Err("rewards stalls of films whose top bitrate is 1 Mbit/s or less".to_owned());
    }
    Ok(Terms { qualities: logs(film), stall_per_s, change: preference.changes })
}
