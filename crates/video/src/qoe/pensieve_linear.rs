//! Pensieve's QoE_lin (Mao et al. 2017, table 1): R - 4.3 T - |dR|, with R in Mbit/s and T in seconds. 4.3 is
//! the top bitrate of Pensieve's film in Mbit/s; for other films the stall cost is their own top bitrate
//! (Narayanan et al., SIGCOMM 2021).

use super::{Terms, megabits, top};
use crate::Film;

pub(super) fn terms(film: &Film) -> Result<Terms, String> {
    let qualities = megabits(film);
    Ok(Terms { stall_per_s: top(&qualities), change: 1.0, qualities })
}
