//! Generated chunk sizes, for films without measured sizes: bitrate x length, or random values around it.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng as _;
use rand_distr::{Distribution as _, LogNormal};
use skyhop_units::Duration;

use super::{Track, Variation};

/// Return constant sizes of `chunks` chunks by track: bitrate x length.
pub(super) fn constant(tracks: &[Track], chunk: Duration, chunks: usize) -> Vec<Vec<u64>> {
    tracks.iter().map(|track| vec![track.bitrate.bytes_in(chunk).as_u64(); chunks]).collect()
}

/// Multiply the sizes of each chunk, in all tracks, by one random factor (a scene is as complex in every
/// quality), log-normal with mean 1.
pub(super) fn varied(sizes: &mut [Vec<u64>], variation: Variation) {
    let variance = (1.0 + variation.relative_sd.powi(2)).ln();
    let Ok(factors) = LogNormal::new(-variance / 2.0, variance.sqrt()) else { return };
    let mut rng = ChaCha8Rng::seed_from_u64(variation.seed);
    for chunk in 0..sizes.first().map_or(0, Vec::len) {
        let factor: f64 = factors.sample(&mut rng);
        for sizes in sizes.iter_mut() {
            sizes[chunk] = ((sizes[chunk] as f64 * factor).round() as u64).max(1);
        }
    }
}
