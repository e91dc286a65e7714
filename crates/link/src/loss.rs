//! Loss at random behind the queue: independent from packet to packet, or in bursts.
//!
//! In files a loss is a percentage, `"1 %"`, or a table, `{ kind = "gilbert-elliott", good = "10 s", bad = "200 ms" }`.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use serde::ser::Serializer;
use serde::{Deserialize, Serialize};
use skyhop_units::{Duration, Ratio};

/// Random loss of packets behind the queue.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Loss {
    /// Probability with which each packet is lost, independently of all others.
    Independent(Ratio),
    /// Losses in bursts, by a chain of two states.
    GilbertElliott(GilbertElliott),
}

/// Gilbert-Elliott model: a Markov chain with a good and a bad state, and a probability of loss in each (Gilbert,
/// "Capacity of a burst-noise channel", 1960; Elliott, "Estimates of error rates for codes on burst-noise channels",
/// 1963). The chain begins in its stationary distribution.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GilbertElliott {
    /// Law by which the state changes.
    pub switching: Switching,
    /// Probability with which a packet is lost in the bad state.
    pub bad_loss: Ratio,
    /// Probability with which a packet is lost in the good state.
    pub good_loss: Ratio,
}

/// Law by which the state of a [`GilbertElliott`] model changes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Switching {
    /// A change after each packet, whatever the time between two: `gemodel` of Linux's netem.
    PerPacket {
        /// Probability of a change from good to bad; above 0.
        p: Ratio,
        /// Probability of a change from bad to good; above 0.
        r: Ratio,
    },
    /// Changes at random times, whatever the traffic: the lengths of the periods are exponentially distributed.
    InTime {
        /// Mean length of the good periods.
        good: Duration,
        /// Mean length of the bad periods.
        bad: Duration,
    },
}

/// Shortest mean length of a period.
const SHORTEST: Duration = Duration::from_micros(100);

impl Loss {
    /// Loss of no packet.
    pub const NONE: Self = Self::Independent(Ratio::ZERO);

    /// Share of the packets that are lost in the long run, from 0 to 1; with [`Switching::InTime`], of packets sent
    /// at a constant rate.
    pub fn mean(&self) -> f64 {
        match self {
            Self::Independent(probability) => probability.fraction(),
            Self::GilbertElliott(model) => {
                let (bad, bad_loss) = (model.bad_share(), model.bad_loss.fraction());
                bad * bad_loss + (1.0 - bad) * model.good_loss.fraction()
            }
        }
    }
}

impl GilbertElliott {
    /// Share of the packets, or of the time, in the bad state: `p / (p + r)`, or `bad / (good + bad)`.
    pub(crate) fn bad_share(&self) -> f64 {
        let (to_bad, to_good) = match self.switching {
            Switching::PerPacket { p, r } => (p.fraction(), r.fraction()),
            Switching::InTime { good, bad } => (bad.as_nanos() as f64, good.as_nanos() as f64),
        };
        to_bad / (to_bad + to_good)
    }
}

impl From<Ratio> for Loss {
    fn from(probability: Ratio) -> Self {
        Self::Independent(probability)
    }
}

/// Writes the loss as in a scenario file (TOML).
impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let model = match self {
            Self::Independent(probability) => return write!(f, "\"{probability}\""),
            Self::GilbertElliott(model) => model,
        };
        match model.switching {
            Switching::PerPacket { p, r } => {
                write!(f, "{{ kind = \"{KIND}\", p = \"{p}\", r = \"{r}\"")?
            }
            Switching::InTime { good, bad } => {
                write!(f, "{{ kind = \"{KIND}\", good = \"{good}\", bad = \"{bad}\"")?;
            }
        }
        write!(f, ", bad_loss = \"{}\", good_loss = \"{}\" }}", model.bad_loss, model.good_loss)
    }
}

const KIND: &str = "gilbert-elliott";

/// Table form of a loss in files.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", expecting = "a table")]
enum LossTable {
    /// Losses in bursts (Gilbert-Elliott): a good and a bad state, which change after each packet (p and r) or at
    /// random times (good and bad)
    #[serde(rename = "gilbert-elliott")]
    GilbertElliott(GilbertElliottKeys),
}

/// Keys of a loss in bursts: p and r, or good and bad.
#[derive(Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GilbertElliottKeys {
    /// Probability that the state changes from good to bad after a packet (p of netem's gemodel); above 0 %, and
    /// together with `r`.
    #[serde(skip_serializing_if = "Option::is_none")]
    p: Option<Ratio>,
    /// Probability that the state changes from bad to good after a packet (r of gemodel); above 0 %. A bad period
    /// has 1/r packets on average.
    #[serde(skip_serializing_if = "Option::is_none")]
    r: Option<Ratio>,
    /// Mean length of the good periods, whose lengths are exponentially distributed; at least 100 us, and together
    /// with `bad`.
    #[serde(skip_serializing_if = "Option::is_none")]
    good: Option<Duration>,
    /// Mean length of the bad periods; at least 100 us.
    #[serde(skip_serializing_if = "Option::is_none")]
    bad: Option<Duration>,
    /// Probability that a packet is lost in the bad state (1-h of gemodel).
    #[serde(default = "certain")]
    bad_loss: Ratio,
    /// Probability that a packet is lost in the good state (1-k of gemodel).
    #[serde(default)]
    good_loss: Ratio,
}

fn certain() -> Ratio {
    Ratio::new(1.0).expect("a fraction")
}

impl TryFrom<GilbertElliottKeys> for GilbertElliott {
    type Error = &'static str;

    fn try_from(keys: GilbertElliottKeys) -> Result<Self, Self::Error> {
        let GilbertElliottKeys { p, r, good, bad, bad_loss, good_loss } = keys;
        let switching = match (p, r, good, bad) {
            (Some(p), Some(r), None, None) => Switching::PerPacket { p, r },
            (None, None, Some(good), Some(bad)) => Switching::InTime { good, bad },
            _ => {
                return Err(
                    "gilbert-elliott needs p and r, or good and bad; give one of the two pairs",
                );
            }
        };
        match switching {
            Switching::PerPacket { p, r } if p == Ratio::ZERO || r == Ratio::ZERO => {
                Err("p or r is 0 %, so that one state would last for ever; give more than 0 %")
            }
            Switching::InTime { good, bad } if good < SHORTEST || bad < SHORTEST => {
                Err("good or bad is too short; give at least 100 us")
            }
            _ => Ok(Self { switching, bad_loss, good_loss }),
        }
    }
}

impl From<GilbertElliott> for GilbertElliottKeys {
    fn from(model: GilbertElliott) -> Self {
        let GilbertElliott { switching, bad_loss, good_loss } = model;
        let none = Self { p: None, r: None, good: None, bad: None, bad_loss, good_loss };
        match switching {
            Switching::PerPacket { p, r } => Self { p: Some(p), r: Some(r), ..none },
            Switching::InTime { good, bad } => Self { good: Some(good), bad: Some(bad), ..none },
        }
    }
}

impl Serialize for Loss {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Independent(probability) => probability.serialize(to),
            Self::GilbertElliott(model) => LossTable::GilbertElliott((*model).into()).serialize(to),
        }
    }
}

impl<'de> Deserialize<'de> for Loss {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(RatioOrTable)
    }
}

struct RatioOrTable;

impl<'de> Visitor<'de> for RatioOrTable {
    type Value = Loss;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a percentage such as \"0.1 %\", or a table with kind = \"gilbert-elliott\"")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        text.parse().map(Loss::Independent).map_err(E::custom)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        let LossTable::GilbertElliott(keys) =
            LossTable::deserialize(MapAccessDeserializer::new(map))?;
        keys.try_into().map(Loss::GilbertElliott).map_err(A::Error::custom)
    }
}

impl JsonSchema for Loss {
    fn schema_name() -> Cow<'static, str> {
        "Loss".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let (ratio, table) =
            (generator.subschema_for::<Ratio>(), generator.subschema_for::<LossTable>());
        json_schema!({ "anyOf": [ratio, table] })
    }
}

/// Serde format of the pieces of a loss with numbers in place of text, because percentages in text are not exact.
pub(crate) mod exact {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
    use skyhop_units::{Duration, Ratio};

    use super::{GilbertElliott, Loss, Switching};
    use crate::Piece;

    #[derive(Serialize, Deserialize)]
    #[serde(untagged)]
    enum Numbers {
        Independent(f64),
        PerPacket { p: f64, r: f64, bad_loss: f64, good_loss: f64 },
        InTime { good_ns: u64, bad_ns: u64, bad_loss: f64, good_loss: f64 },
    }

    impl From<Loss> for Numbers {
        fn from(loss: Loss) -> Self {
            let GilbertElliott { switching, bad_loss, good_loss } = match loss {
                Loss::Independent(probability) => return Self::Independent(probability.fraction()),
                Loss::GilbertElliott(model) => model,
            };
            let (bad_loss, good_loss) = (bad_loss.fraction(), good_loss.fraction());
            match switching {
                Switching::PerPacket { p, r } => {
                    let (p, r) = (p.fraction(), r.fraction());
                    Self::PerPacket { p, r, bad_loss, good_loss }
                }
                Switching::InTime { good, bad } => {
                    let (good_ns, bad_ns) = (good.as_nanos(), bad.as_nanos());
                    Self::InTime { good_ns, bad_ns, bad_loss, good_loss }
                }
            }
        }
    }

    impl Numbers {
        /// The loss with these values; `None` if a number is not a fraction.
        fn loss(self) -> Option<Loss> {
            let (switching, bad_loss, good_loss) = match self {
                Self::Independent(probability) => {
                    return Ratio::new(probability).map(Loss::Independent);
                }
                Self::PerPacket { p, r, bad_loss, good_loss } => {
                    let (p, r) = (Ratio::new(p)?, Ratio::new(r)?);
                    (Switching::PerPacket { p, r }, bad_loss, good_loss)
                }
                Self::InTime { good_ns, bad_ns, bad_loss, good_loss } => {
                    let [good, bad] = [good_ns, bad_ns].map(Duration::from_nanos);
                    (Switching::InTime { good, bad }, bad_loss, good_loss)
                }
            };
            let (bad_loss, good_loss) = (Ratio::new(bad_loss)?, Ratio::new(good_loss)?);
            Some(Loss::GilbertElliott(GilbertElliott { switching, bad_loss, good_loss }))
        }
    }

    pub(crate) fn serialize<S: Serializer>(
        losses: &[Piece<Loss>],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let exact =
            losses.iter().map(|one| Piece { from: one.from, value: Numbers::from(one.value) });
        exact.collect::<Vec<_>>().serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<Piece<Loss>>, D::Error> {
        let exact = Vec::<Piece<Numbers>>::deserialize(deserializer)?.into_iter();
        let checked = exact.map(|Piece { from, value }| {
            value
                .loss()
                .map(|value| Piece { from, value })
                .ok_or_else(|| de::Error::custom("a loss is not a fraction"))
        });
        checked.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LinkSchedule, Piece};
    use skyhop_units::{Instant, Rate};

    fn read(json: &str) -> Result<Loss, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    const IN_TIME: &str = r#"{"kind":"gilbert-elliott","good":"10 s","bad":"200 ms","bad_loss":"50 %","good_loss":"0.1 %"}"#;
    const PER_PACKET: &str =
        r#"{"kind":"gilbert-elliott","p":"1 %","r":"25 %","bad_loss":"100 %","good_loss":"0 %"}"#;

    #[test]
    fn a_loss_is_written_as_it_is_read() {
        for json in ["\"0.1 %\"", IN_TIME, PER_PACKET] {
            let loss = read(json).unwrap();
            assert_eq!(serde_json::to_string(&loss).unwrap(), json);
            let mut schedule = LinkSchedule::fixed(Duration::ZERO, Rate::ZERO, Ratio::ZERO);
            schedule.loss = vec![Piece { from: Instant::START, value: loss }];
            let exact = serde_json::to_string(&schedule).unwrap();
            assert_eq!(serde_json::from_str::<LinkSchedule>(&exact).unwrap(), schedule);
        }
        let short = read(r#"{"kind": "gilbert-elliott", "p": "1 %", "r": "25 %"}"#).unwrap();
        assert_eq!(
            short,
            read(PER_PACKET).unwrap(),
            "all are lost in the bad state, none in the other"
        );
        assert_eq!(
            short.to_string(),
            r#"{ kind = "gilbert-elliott", p = "1 %", r = "25 %", bad_loss = "100 %", good_loss = "0 %" }"#
        );
    }

    #[test]
    fn the_mean_is_that_of_both_states_by_their_shares() {
        let near = |json, mean: f64| {
            let found = read(json).unwrap().mean();
            assert!((found - mean).abs() < 1e-12, "{json}: {found}");
        };
        near("\"2 %\"", 0.02);
        near(PER_PACKET, 0.01 / 0.26);
        near(IN_TIME, (0.2 * 0.5 + 10.0 * 0.001) / 10.2);
    }

    #[test]
    fn a_loss_that_cannot_be_is_refused_in_one_line() {
        let table = |keys: &str| format!(r#"{{"kind": "gilbert-elliott", {keys}}}"#);
        for (json, expected) in [
            ("\"200 %\"".to_owned(), "\"200 %\" is out of range"),
            ("5".to_owned(), "expected a percentage such as \"0.1 %\", or a table"),
            (r#"{"p": "1 %", "r": "5 %"}"#.to_owned(), "missing field `kind`"),
            (r#"{"kind": "gilbert"}"#.to_owned(), "expected `gilbert-elliott`"),
            (table(r#""p": "1 %""#), "needs p and r, or good and bad"),
            (table(r#""p": "1 %", "r": "5 %", "bad": "1 s""#), "needs p and r, or good and bad"),
            (table(r#""p": "0 %", "r": "5 %""#), "p or r is 0 %"),
            (table(r#""good": "1 s", "bad": "99 us""#), "at least 100 us"),
            (table(r#""good": "1 s", "bad": "1 s", "loss": "1 %""#), "unknown field `loss`"),
        ] {
            let error = read(&json).unwrap_err();
            assert!(error.contains(expected) && !error.contains('\n'), "{json}: {error}");
        }
    }
}
