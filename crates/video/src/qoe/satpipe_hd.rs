//! SatPipe's QoE for high definition: q(R) = R ln(R / Rmin), R in Mbit/s; a second of stall costs Rmax, or twice that.

use super::{Preference, Terms, logs, megabits, top};
use crate::Film;

pub(super) fn terms(film: &Film, preference: Preference) -> Result<Terms, String> {
    let rates = megabits(film);
    let qualities = rates.iter().zip(logs(film)).map(|(rate, log)| rate * log).collect();
    Ok(Terms {
        qualities,
        stall_per_s: preference.stalls * top(&rates),
        change: preference.changes,
    })
}
