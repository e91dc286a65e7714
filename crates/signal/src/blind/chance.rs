//! How likely evidence comes about by chance.

/// Gaps as good turn up by chance in this share of all logs.
pub(super) const CHANCE: f64 = 1e-4;

/// Terms of this share of a sum do not change it: less than half a unit in the last place.
const ROUNDED_AWAY: f64 = 1e-17;

/// What of a share is more than chance gives, from 0 to 1.
pub(super) fn less_chance(share: f64, chance: f64) -> f64 {
    ((share - chance) / (1.0 - chance)).clamp(0.0, 1.0)
}

/// The probability that at least `hits` of `moments` independent trials succeed.
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
        // Beyond the mode terms only shrink: the rest rounds away, of a log with a wrong clock billions.
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
    fn the_tail_of_a_binomial_is_what_it_is() {
        assert!((at_least(0, 10, 0.3) - 1.0).abs() < 1e-12);
        assert!((at_least(1, 2, 0.5) - 0.75).abs() < 1e-12);
        assert!((at_least(3, 3, 0.2) - 0.008).abs() < 1e-12);
        assert_eq!(at_least(1, 3, 0.0), 0.0);
        // Poisson's limit: 1 - exp(-1) of at least one in a billion trials.
        assert!((at_least(1, 1_000_000_000, 1e-9) - 0.632_120_558_8).abs() < 1e-6);
        assert!((at_least(3, 3, 1.0) - 1.0).abs() < 1e-9);
    }
}
