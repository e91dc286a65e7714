//! SatPipe's linear QoE: q(R) = R in Mbit/s, a second of stall costs Rmax, or twice that.

use super::{Preference, Terms, megabits, top};
use crate::Film;

pub(super) fn terms(film: &Film, preference: Preference) -> Result<Terms, String> {
    let qualities = megabits(film);
    let stall_per_s = preference.stalls * top(&qualities);
    Ok(Terms { stall_per_s, change: preference.changes, qualities })
}
