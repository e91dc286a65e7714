//! Random error of handover times that are computed from element sets fetched three hours before,
//! as in SaTCP's Figure 4.
//!
//! The figure shows the distribution of the error's absolute value over 1605 Starlink satellites
//! (docs/explanation/announcements.md explains its origin). It does not show the sign; here both signs are
//! equally likely.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use skyhop_units::Duration;

/// Cumulative distribution in the figure, as pairs: a share of the errors, and the absolute value
/// in ms that this share does not exceed. Between the pairs the distribution is linear.
const QUANTILES: [(f64, f64); 9] = [
    (0.00, 0.0),
    (0.10, 30.0),
    (0.25, 75.0),
    (0.50, 158.0),
    (0.70, 270.0),
    (0.80, 350.0),
    (0.90, 600.0),
    (0.97, 1050.0),
    (1.00, 1600.0),
];

/// Maximum absolute value of the error.
pub(crate) const LARGEST: Duration = Duration::from_millis(1600);

/// Draw an error: its absolute value, and whether the announced time is later than the true time.
pub(crate) fn draw(rng: &mut ChaCha8Rng) -> (Duration, bool) {
    const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
    let bits = rng.next_u64();
    (size((bits >> 11) as f64 * STEP), bits & 1 == 1)
}

/// Quantile of the error's absolute value: the share `share` (0 to 1) of the errors does not exceed it.
fn size(share: f64) -> Duration {
    let above =
        QUANTILES.iter().position(|(most, _)| share <= *most).unwrap_or(QUANTILES.len() - 1).max(1);
    let ((low, low_ms), (high, high_ms)) = (QUANTILES[above - 1], QUANTILES[above]);
    let ms = low_ms + (high_ms - low_ms) * (share - low) / (high - low);
    Duration::from_secs_f64(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;

    #[test]
    fn the_quantiles_are_those_of_the_figure() {
        for (share, ms) in [(0.0, 0), (0.5, 158), (0.9, 600), (1.0, 1600)] {
            assert_eq!(size(share), Duration::from_millis(ms), "{share}");
        }
        assert_eq!(size(0.375).as_micros(), 116_500, "straight between 75 and 158 ms");
    }

    #[test]
    fn what_is_drawn_has_them_too() {
        let mut rng = ChaCha8Rng::seed_from_u64(5);
        let drawn: Vec<(Duration, bool)> = (0..20_000).map(|_| draw(&mut rng)).collect();
        let share = |holds: &dyn Fn(&(Duration, bool)) -> bool| {
            drawn.iter().filter(|error| holds(error)).count() as f64 / drawn.len() as f64
        };
        let within = |ms: u64| share(&|(size, _)| *size <= Duration::from_millis(ms));
        assert!((within(158) - 0.5).abs() < 0.015, "{}", within(158));
        assert!((within(600) - 0.9).abs() < 0.01, "{}", within(600));
        assert_eq!(within(1600), 1.0);
        let late = share(&|(_, is_late)| *is_late);
        assert!((late - 0.5).abs() < 0.015, "{late}");
    }
}
