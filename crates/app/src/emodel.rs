//! E-model of ITU-T G.107 (06/2015), with all parameters except delay and loss at their defaults: maps
//! the measurements of a call's receiver to a mean opinion score.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use skyhop_units::{Duration, Rate};

/// The rating with all parameters at their defaults (G.107 7.7).
const R_DEFAULT: f64 = 93.2;

/// Speech codec. Its sensitivity to packet loss (Ie and Bpl) is from ITU-T G.113 appendix I.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// G.711 with its packet loss concealment (appendix I of G.711): 64 kbit/s.
    #[default]
    G711,
    /// G.711 without loss concealment: 64 kbit/s.
    G711Bare,
    /// G.729 with annex A: 8 kbit/s.
    G729a,
}

impl Codec {
    /// Bit rate of the coded speech.
    pub const fn rate(self) -> Rate {
        match self {
            Self::G711 | Self::G711Bare => Rate::from_bits_per_second(64_000),
            Self::G729a => Rate::from_bits_per_second(8_000),
        }
    }

    /// Look-ahead: duration of the speech after a frame that the coder needs before it can code the frame.
    pub const fn look_ahead(self) -> Duration {
        match self {
            Self::G711 | Self::G711Bare => Duration::ZERO,
            Self::G729a => Duration::from_millis(5),
        }
    }

    /// The equipment impairment factor without loss, Ie, and the packet-loss robustness factor, Bpl.
    const fn impairment(self) -> (f64, f64) {
        match self {
            Self::G711 => (0.0, 25.1),
            Self::G711Bare => (0.0, 4.3),
            Self::G729a => (11.0, 19.0),
        }
    }

    /// The mean opinion score, 1 to 4.5, of speech that is heard `delay` after it was spoken, with this share of its
    /// packets lost, independently of each other (BurstR = 1).
    pub fn mos(self, delay: Duration, lost: f64) -> f64 {
        let (ie, bpl) = self.impairment();
        let percent = 100.0 * lost;
        // G.107 (7-29).
        let ie_eff = ie + (95.0 - ie) * percent / (percent + bpl);
        mos_of(R_DEFAULT - delay_impairment(delay) - ie_eff)
    }
}

/// Idd, the impairment by too long a delay with perfectly cancelled echo, for users with sT = 1 and mT = 100
/// ms: G.107 (7-27) and (7-28).
fn delay_impairment(delay: Duration) -> f64 {
    let ms = delay.as_secs_f64() * 1e3;
    if ms <= 100.0 {
        return 0.0;
    }
    let x = (ms / 100.0).log2();
    let root = |value: f64| (1.0 + value.powi(6)).powf(1.0 / 6.0);
    25.0 * (root(x) - 3.0 * root(x / 3.0) + 2.0)
}

/// Mean opinion score of a rating R: G.107 annex B (B-4).
fn mos_of(r: f64) -> f64 {
    match r {
        r if r <= 0.0 => 1.0,
        r if r >= 100.0 => 4.5,
        // Just above R = 0 the polynomial is less than 1, the lowest opinion score.
        r => (1.0 + 0.035 * r + r * (r - 60.0) * (100.0 - r) * 7e-6).max(1.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opinions_are_those_of_the_recommendation() {
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 0.01, "{found}");
        let mos = |ms, lost| Codec::G711.mos(Duration::from_millis(ms), lost);
        // R = 93.2 is 4.41 (G.107 annex B, table B.1, has 4.34 at 90 and 4.50 at 100).
        near(mos(50, 0.0), 4.41);
        near(mos_of(90.0), 4.34);
        near(mos_of(80.0), 4.02);
        near(mos_of(50.0), 2.58);
        // Idd at 200 ms is 25 (2^(1/6) - 3 (1 + 3^-6)^(1/6) + 2).
        near(delay_impairment(Duration::from_millis(200)), 25.0 * (1.122_462 - 3.000_686 + 2.0));
        // 5 % lost: Ie,eff = 95 * 5 / 30.1 = 15.78.
        near(mos(100, 0.05), mos_of(93.2 - 15.78));
        near(Codec::G729a.mos(Duration::ZERO, 0.0), mos_of(82.2));
        assert_eq!(Codec::G711Bare.mos(Duration::from_secs(2), 1.0), 1.0);
    }
}
