//! Pensieve's QoE_hd (Mao et al. 2017, table 1): a table of six qualities, from the lowest to the highest track.

use super::Terms;
use crate::Film;

const QUALITIES: [f64; 6] = [1.0, 2.0, 3.0, 12.0, 15.0, 20.0];

pub(super) fn terms(film: &Film) -> Result<Terms, String> {
    let tracks = film.tracks.len();
    if tracks != QUALITIES.len() {
        return Err(format!("is a table of 6 tracks; the film {} has {tracks}", film.name));
    }
    Ok(Terms { qualities: QUALITIES.to_vec(), stall_per_s: 8.0, change: 1.0 })
}
