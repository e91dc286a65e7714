//! Quantities that are fixed or random, such as `"100 kB"` or `{ distribution = "exponential", mean
//! = "100 kB" }`.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp1, LogNormal, Pareto, Uniform, Weibull};
use schemars::JsonSchema;
use serde::de::{Error as _, MapAccess, Visitor, value::MapAccessDeserializer};
use serde::{Deserialize, Deserializer, Serialize};
use skyhop_units::{Bytes, Duration};

/// Quantity with a fixed value, or with a distribution from which a value is drawn for each use.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum Draw<Q> {
    /// Fixed value, always the same.
    Fixed(Q),
    /// Random value, drawn again for each use.
    Drawn(Distribution<Q>),
}

/// Distribution of a random quantity.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "distribution", rename_all = "lowercase", deny_unknown_fields, expecting = "a table")]
pub enum Distribution<Q> {
    /// Exponential distribution: P(X > x) = exp(-x / mean).
    Exponential {
        /// Mean of the values.
        mean: Q,
    },
    /// Uniform distribution between two values, both included.
    Uniform {
        /// Smallest value; at most `to`.
        from: Q,
        /// Largest value; at least `from`.
        to: Q,
    },
    /// Lognormal distribution: the natural logarithm is normally distributed.
    Lognormal {
        /// Median of the values; above 0.
        median: Q,
        /// Standard deviation of the natural logarithm; above 0.
        sigma: f64,
    },
    /// Pareto distribution, heavy-tailed: P(X > x) = (least / x)^shape.
    Pareto {
        /// Smallest value; above 0.
        least: Q,
        /// Exponent of the tail, above 0; the mean is infinite for exponents up to 1.
        shape: f64,
    },
    /// Weibull distribution: P(X > x) = exp(-(x / scale)^shape).
    Weibull {
        /// Scale, above 0; 63 % of the values are smaller.
        scale: Q,
        /// Exponent, above 0; below 1 the tail is heavier than the exponential distribution's.
        shape: f64,
    },
}

/// Quantity that may be random: it can be converted to and from a number in its base unit.
pub trait Quantity: Copy + PartialOrd + FromStr<Err: fmt::Display> {
    /// Return the value in its base unit.
    fn to_f64(self) -> f64;
    /// Create the quantity from a value in its base unit, rounded.
    fn from_f64(value: f64) -> Self;
    /// Create the quantity from a number without a unit; `None` if the quantity needs a unit.
    fn from_number(_number: u64) -> Option<Self> {
        None
    }
}

impl Quantity for u32 {
    fn to_f64(self) -> f64 {
        self.into()
    }

    fn from_f64(value: f64) -> Self {
        value.round() as Self
    }

    fn from_number(number: u64) -> Option<Self> {
        number.try_into().ok()
    }
}

impl Quantity for Bytes {
    fn to_f64(self) -> f64 {
        self.as_u64() as f64
    }

    fn from_f64(value: f64) -> Self {
        Self::new(value.round() as u64)
    }
}

impl Quantity for Duration {
    fn to_f64(self) -> f64 {
        self.as_nanos() as f64
    }

    fn from_f64(value: f64) -> Self {
        Self::from_nanos(value.round() as u64)
    }
}

impl<Q: Quantity> Draw<Q> {
    /// Return the next value, drawn from `rng` if it is random.
    pub fn next(&self, rng: &mut ChaCha8Rng) -> Q {
        match *self {
            Self::Fixed(value) => value,
            Self::Drawn(distribution) => Q::from_f64(distribution.sample(rng)),
        }
    }

    /// Smallest value that is possible.
    pub fn least(&self) -> Q {
        match *self {
            Self::Fixed(value) => value,
            Self::Drawn(Distribution::Uniform { from, .. }) => from,
            Self::Drawn(Distribution::Pareto { least, .. }) => least,
            Self::Drawn(_) => Q::from_f64(0.0),
        }
    }
}

impl<Q: Quantity> Distribution<Q> {
    fn sample(&self, rng: &mut ChaCha8Rng) -> f64 {
        match *self {
            Self::Exponential { mean } => {
                let unit: f64 = Exp1.sample(rng);
                mean.to_f64() * unit
            }
            Self::Uniform { from, to } => Uniform::new_inclusive(from.to_f64(), to.to_f64())
                .expect("checked when it was read")
                .sample(rng),
            Self::Lognormal { median, sigma } => LogNormal::new(median.to_f64().ln(), sigma)
                .expect("checked when it was read")
                .sample(rng),
            Self::Pareto { least, shape } => {
                Pareto::new(least.to_f64(), shape).expect("checked when it was read").sample(rng)
            }
            Self::Weibull { scale, shape } => {
                Weibull::new(scale.to_f64(), shape).expect("checked when it was read").sample(rng)
            }
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        let zero = |value: Q| value.to_f64() <= 0.0;
        let positive = |value: f64| value.is_finite() && value > 0.0;
        match *self {
            Self::Uniform { from, to } if from > to => Err("`to` is smaller than `from`"),
            Self::Lognormal { median, .. } if zero(median) => Err("`median` must be above 0"),
            Self::Lognormal { sigma, .. } if !positive(sigma) => Err("`sigma` must be above 0"),
            Self::Pareto { least, .. } if zero(least) => Err("`least` must be above 0"),
            Self::Weibull { scale, .. } if zero(scale) => Err("`scale` must be above 0"),
            Self::Pareto { shape, .. } | Self::Weibull { shape, .. } if !positive(shape) => {
                Err("`shape` must be above 0")
            }
            _ => Ok(()),
        }
    }
}

impl<'de, Q: Quantity + Deserialize<'de>> Deserialize<'de> for Draw<Q> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FixedOrDrawn<Q>(PhantomData<Q>);

        impl<'de, Q: Quantity + Deserialize<'de>> Visitor<'de> for FixedOrDrawn<Q> {
            type Value = Draw<Q>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity, or a table with its distribution")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Draw<Q>, E> {
                text.parse().map(Draw::Fixed).map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Draw<Q>, E> {
                let value = Q::from_number(number).map(Draw::Fixed);
                value.ok_or_else(|| E::invalid_type(serde::de::Unexpected::Unsigned(number), &self))
            }

            fn visit_i64<E: serde::de::Error>(self, number: i64) -> Result<Draw<Q>, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_type(serde::de::Unexpected::Signed(number), &self)),
                }
            }

            fn visit_map<M: MapAccess<'de>>(self, map: M) -> Result<Draw<Q>, M::Error> {
                let drawn = Distribution::<Q>::deserialize(MapAccessDeserializer::new(map))?;
                drawn.check().map_err(M::Error::custom)?;
                Ok(Draw::Drawn(drawn))
            }
        }

        deserializer.deserialize_any(FixedOrDrawn(PhantomData))
    }
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng as _;

    use super::*;

    fn mean_of(text: &str) -> f64 {
        let draw: Draw<Bytes> = serde_json::from_str(text).unwrap();
        let mut rng = ChaCha8Rng::seed_from_u64(7);
        (0..20_000).map(|_| draw.next(&mut rng).to_f64()).sum::<f64>() / 20_000.0
    }

    #[test]
    fn draws_have_the_means_of_their_distributions() {
        let near = |text: &str, mean: f64| {
            let found = mean_of(text);
            assert!((found / mean - 1.0).abs() < 0.03, "{text}: {found}");
        };
        near(r#""100 kB""#, 1e5);
        near(r#"{"distribution": "exponential", "mean": "100 kB"}"#, 1e5);
        near(r#"{"distribution": "uniform", "from": "50 kB", "to": "150 kB"}"#, 1e5);
        // exp(sigma^2 / 2) times the median; shape / (shape - 1) times the least.
        near(r#"{"distribution": "lognormal", "median": "100 kB", "sigma": 0.5}"#, 1.1331e5);
        near(r#"{"distribution": "pareto", "least": "100 kB", "shape": 3}"#, 1.5e5);
        // The gamma function at 1.5 times the scale.
        near(r#"{"distribution": "weibull", "scale": "100 kB", "shape": 2}"#, 0.88623e5);
    }

    #[test]
    fn what_cannot_be_drawn_is_refused_with_its_reason() {
        let refused = |text: &str| serde_json::from_str::<Draw<Duration>>(text).unwrap_err();
        let error = refused(r#"{"distribution": "uniform", "from": "2 s", "to": "1 s"}"#);
        assert!(error.to_string().contains("`to` is smaller than `from`"), "{error}");
        let error = refused(r#"{"distribution": "pareto", "least": "1 s", "shape": -1}"#);
        assert!(error.to_string().contains("`shape` must be above 0"), "{error}");
        let error = refused(r#"{"distribution": "normal", "mean": "1 s"}"#);
        assert!(error.to_string().contains("unknown variant `normal`"), "{error}");
        let error = refused(r#""1 kB""#);
        assert!(error.to_string().contains("kB"), "{error}");
    }

    #[test]
    fn what_is_written_can_be_read_again() {
        for text in [r#""1 s""#, r#"{"distribution":"exponential","mean":"1 s"}"#] {
            let draw: Draw<Duration> = serde_json::from_str(text).unwrap();
            assert_eq!(serde_json::to_string(&draw).unwrap(), text);
        }
    }
}
