//! Pensieve's QoE_lin (Mao et al. 2017, table 1): R - 4.3 T - |dR|, R in Mbit/s, T in seconds. 4.3 is its film's top bitrate; other films
//! have their own there (Narayanan et al., SIGCOMM 2021).

use super::{Terms, megabits, top};
use crate::Film;

pub(super) fn terms(film: &Film) -> Result<Terms, String> {
    let qualities = megabits(film);
    Ok(Terms { stall_per_s: top(&qualities), change: 1.0, qualities })
}
