//! Terms of features: a quantity of the newest report, or aggregated over a window of reports.

use std::str::FromStr;

use serde::Deserialize;
use skyhop_units::did_you_mean;

use crate::card::Feature;
use crate::quantity::{Quantities, Quantity};

/// Largest number of reports in a window.
const MOST_REPORTS: usize = 100_000;

/// Aggregation of a quantity over a window of reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Aggregate {
    /// Value of the newest report alone.
    Now,
    /// Value of the report before the newest; 0 if there is none.
    Previous,
    /// Difference between the newest report and the one before it.
    Change,
    /// Arithmetic mean of the values.
    Mean,
    /// Smallest value that is not 0; 0 if there is none.
    Min,
    /// Smallest value, 0 included.
    Least,
    /// Largest value in the window.
    Max,
    /// Sum of the values.
    Sum,
}

/// A quantity, its aggregation, and the number of reports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Term {
    /// Name of the quantity: of a report, or one that the card defines.
    pub of: String,
    /// Aggregation over the window.
    pub aggregate: Aggregate,
    /// Number of reports in the window, the newest included; `None`: all since the connection began.
    pub reports: Option<usize>,
}

impl TryFrom<String> for Term {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl FromStr for Term {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((aggregate, inside)) = text.split_once('(') else {
            return Ok(Self {
                of: text.trim().to_owned(),
                aggregate: Aggregate::Now,
                reports: Some(1),
            });
        };
        let inside = inside.strip_suffix(')').ok_or_else(|| format!("`{text}` has no `)`"))?;
        let (name, reports) = match inside.split_once(',') {
            Some((name, reports)) => (name, Some(reports.trim())),
            None => (inside, None),
        };
        let aggregate = match aggregate.trim() {
            "previous" => Aggregate::Previous,
            "change" => Aggregate::Change,
            "mean" => Aggregate::Mean,
            "min" => Aggregate::Min,
            "least" => Aggregate::Least,
            "max" => Aggregate::Max,
            "sum" => Aggregate::Sum,
            other => {
                let known = ["previous", "change", "mean", "min", "least", "max", "sum"];
                return Err(format!(
                    "`{other}` is not a known aggregate{}; known are {}",
                    did_you_mean(other, known),
                    known.join(", ")
                ));
            }
        };
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=MOST_REPORTS).contains(number));
            number.ok_or_else(|| {
                format!("`{text}` is not a number of reports from 1 to {MOST_REPORTS}")
            })
        };
        let reports = match aggregate {
            Aggregate::Previous | Aggregate::Change => Some(2),
            _ => reports.map(number).transpose()?,
        };
        Ok(Self { of: name.trim().to_owned(), aggregate, reports })
    }
}

/// Origin of a term's values.
#[derive(Debug, Clone, Copy)]
enum Source {
    Report(Quantity),
    /// Quantity that the card defines, by its index.
    Own(usize),
}

impl Source {
    /// Find the quantity called `name` among the quantities of reports and those that the card defines (`own`).
    fn find(name: &str, own: &[&str]) -> Option<Self> {
        let reported = Quantity::ALL.iter().find(|quantity| quantity.name() == name);
        let defined = || own.iter().position(|one| *one == name).map(Self::Own);
        reported.copied().map(Self::Report).or_else(defined)
    }
}

/// Check that terms may use a name, given the names of the card's quantities defined before them.
pub(crate) fn check_name(name: &str, own: &[&str]) -> Result<(), String> {
    if Source::find(name, own).is_some() {
        return Ok(());
    }
    let reported = Quantity::ALL.iter().map(|quantity| quantity.name());
    let known: Vec<&str> = own.iter().copied().chain(reported).collect();
    let hint = did_you_mean(name, known.iter().copied());
    let name = name.escape_debug();
    Err(format!("`{name}` is not a known quantity{hint}; known are {}", known.join(", ")))
}

/// Sum, minimum or maximum over a sliding window, kept in two stacks (the two-stack queue). Each entry of the older
/// stack aggregates its value with all newer ones of that stack. The cost of a report does not depend on the length of
/// the window, and as no value is ever subtracted, a sum of zeros is exactly 0 even after large values have left the
/// window.
#[derive(Debug, Clone)]
struct SlidingAggregate {
    combine: fn(f64, f64) -> f64,
    /// Neutral element: aggregate of no values.
    neutral: f64,
    /// Number of values in the window; `None`: all values since the beginning, of which only the aggregate is
    /// stored.
    most: Option<usize>,
    older: Vec<f64>,
    newer: Vec<f64>,
    newer_aggregate: f64,
    count: usize,
}

impl SlidingAggregate {
    fn new(aggregate: Aggregate, most: Option<usize>) -> Self {
        let (combine, neutral): (fn(f64, f64) -> f64, f64) = match aggregate {
            Aggregate::Min | Aggregate::Least => (f64::min, f64::INFINITY),
            Aggregate::Max => (f64::max, f64::NEG_INFINITY),
            _ => (|a, b| a + b, 0.0),
        };
        Self {
            combine,
            neutral,
            most,
            older: vec![],
            newer: vec![],
            newer_aggregate: neutral,
            count: 0,
        }
    }

    /// Add a value, and return the aggregate of the window.
    fn push(&mut self, value: f64) -> f64 {
        if self.most == Some(self.count) {
            self.forget_oldest();
        }
        if self.most.is_some() {
            self.newer.push(value);
        }
        self.count += 1;
        self.newer_aggregate = (self.combine)(self.newer_aggregate, value);
        (self.combine)(self.older.last().copied().unwrap_or(self.neutral), self.newer_aggregate)
    }

    fn forget_oldest(&mut self) {
        if self.older.is_empty() {
            let mut aggregated = self.neutral;
            for value in self.newer.drain(..).rev() {
                aggregated = (self.combine)(value, aggregated);
                self.older.push(aggregated);
            }
            self.newer_aggregate = self.neutral;
        }
        self.older.pop();
        self.count -= 1;
    }
}

/// State of a term: its window of values.
#[derive(Debug, Clone)]
struct Window {
    source: Source,
    aggregate: Aggregate,
    before: f64,
    values: SlidingAggregate,
}

impl Window {
    fn new(term: &Term, own: &[&str]) -> Self {
        // Cards are checked before, so that unknown names do not occur here.
        let source = Source::find(&term.of, own).unwrap_or(Source::Report(Quantity::One));
        let values = SlidingAggregate::new(term.aggregate, term.reports);
        Self { source, aggregate: term.aggregate, before: 0.0, values }
    }

    fn next(&mut self, quantities: &Quantities, own: &[f64]) -> f64 {
        let value = match self.source {
            Source::Report(quantity) => quantities.get(quantity),
            Source::Own(place) => own[place],
        };
        match self.aggregate {
            Aggregate::Now => value,
            Aggregate::Previous => std::mem::replace(&mut self.before, value),
            Aggregate::Change => value - std::mem::replace(&mut self.before, value),
            Aggregate::Mean => {
                let sum = self.values.push(value);
                sum / self.values.count as f64
            }
            Aggregate::Min => {
                finite(self.values.push(if value == 0.0 { f64::INFINITY } else { value }))
            }
            Aggregate::Least | Aggregate::Max | Aggregate::Sum => self.values.push(value),
        }
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// State of a feature on one connection.
#[derive(Debug, Clone)]
pub(crate) struct FeatureState {
    feature: Feature,
    of: Vec<Window>,
    over: Vec<Window>,
}

impl FeatureState {
    /// Create the state; `own` are the names of the card's quantities defined before the feature.
    pub(crate) fn new(feature: &Feature, own: &[&str]) -> Self {
        let windows = |terms: &[Term]| terms.iter().map(|term| Window::new(term, own)).collect();
        Self {
            feature: feature.clone(),
            of: windows(&feature.of.0),
            over: windows(&feature.over.0),
        }
    }

    /// Value after another report; `own` are the values of the card's quantities defined before the feature.
    pub(crate) fn next(&mut self, quantities: &Quantities, own: &[f64]) -> f64 {
        let product = |windows: &mut Vec<Window>| {
            windows.iter_mut().map(|window| window.next(quantities, own)).product::<f64>()
        };
        let (of, over) = (product(&mut self.of), product(&mut self.over));
        let Feature { times, plus, least, most, if_zero, otherwise, decimals, .. } = &self.feature;
        let value = match if_zero {
            Some(value) if of == 0.0 => *value,
            _ if over == 0.0 => *otherwise,
            _ => times * of / over + plus,
        };
        let value = least.map_or(value, |least| value.max(least));
        let value = most.map_or(value, |most| value.min(most));
        finite(decimals.map_or(value, |decimals| rounded(value, decimals)))
    }
}

/// Round a number to `decimals` decimals.
pub(crate) fn rounded(value: f64, decimals: u32) -> f64 {
    let scale = 10_f64.powi(decimals as i32);
    (value * scale).round() / scale
}
