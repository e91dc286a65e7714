//! Probability that evidence arises by chance.

/// Significance level of gaps: the share of logs without a grid in which the gaps agree as well by chance.
pub(super) const CHANCE: f64 = 1e-4;

/// Relative size of a term that no longer changes the sum: less than half a unit in the last place.
const ROUNDED_AWAY: f64 = 1e-17;

/// Share in excess of the share expected by chance, rescaled to 0 to 1.
pub(super) fn above_chance(share: f64, chance: f64) -> f64 {
    ((share - chance) / (1.0 - chance)).clamp(0.0, 1.0)
}

/// Binomial tail: probability that at least `hits` of `moments` independent trials succeed, each
/// with the probability `chance`.
pub(super) fn at_least(hits: usize, moments: usize, chance: f64) -> f64 {
    if chance <= 0.0 {
        return if hits == 0 { 1.0 } else { 0.0 };
    }
    let (success, failure) = (chance.ln(), (1.0 - chance).max(f64::MIN_POSITIVE).ln());
    let mut ln_ways = 0.0;
    let mut total = 0.0;
    for count in 0..=moments {
        if count > 0 {
            ln_ways += ((moments - count + 1) as f64).ln() - (count as f64).ln();
        }
        if count < hits {
            continue;
        }
        let term = (ln_ways + count as f64 * success + (moments - count) as f64 * failure).exp();
        total += term;
        // Beyond the mode the terms shrink until the rest no longer changes the sum. Without this
        // stop, a log with a wrong clock would cause billions of terms.
        if count as f64 > (moments + 1) as f64 * chance && term <= total * ROUNDED_AWAY {
            break;
        }
    }
    total.min(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_binomial_tail_matches_known_values() {
        assert!((at_least(0, 10, 0.3) - 1.0).abs() < 1e-12);
        assert!((at_least(1, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((at_least(3, 3, 0.2) - 0.008).abs() < 1e-12);
        assert_eq!(at_least(1, 3, 0.0), 0.0);
        // Poisson limit: at least one success in a billion trials has the probability 1 - exp(-1).
        assert!((at_least(1, 1_000_000_000, 1e-9) - 0.632_120_558_8).abs() < 1e-6);
        assert!((at_least(3, 3, 1.0) - 1.0).abs() < 1e-9);
    }
}
