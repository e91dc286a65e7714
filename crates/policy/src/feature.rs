//! Terms of features: a quantity as it is now, or over a window of reports.

use std::str::FromStr;

use serde::Deserialize;

use crate::card::Feature;
use crate::quantity::{Quantities, Quantity};

/// How many reports a window may hold.
const MOST_REPORTS: usize = 100_000;

/// What a window of reports amounts to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Take {
    /// The newest alone.
    Now,
    /// The one before it; 0 where there is none.
    Previous,
    /// The newest less the one before it.
    Change,
    /// Arithmetic mean.
    Mean,
    /// Least value that is not 0; 0 where there is none.
    Min,
    /// Least value.
    Least,
    /// Largest value.
    Max,
    /// Sum.
    Sum,
}

/// A quantity, and over how many reports.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Term {
    /// Of what: a quantity of a report, or one of the card's own.
    pub of: String,
    /// What of the window.
    pub take: Take,
    /// How many reports, the newest among them; `None`: all since the connection began.
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
        let Some((take, inside)) = text.split_once('(') else {
            return Ok(Self { of: text.trim().to_owned(), take: Take::Now, reports: Some(1) });
        };
        let inside = inside.strip_suffix(')').ok_or_else(|| format!("`{text}` has no `)`"))?;
        let (name, reports) = match inside.split_once(',') {
            Some((name, reports)) => (name, Some(reports.trim())),
            None => (inside, None),
        };
        let take = match take.trim() {
            "previous" => Take::Previous,
            "change" => Take::Change,
            "mean" => Take::Mean,
            "min" => Take::Min,
            "least" => Take::Least,
            "max" => Take::Max,
            "sum" => Take::Sum,
            other => {
                return Err(format!(
                    "`{other}` is none of previous, change, mean, min, least, max and sum"
                ));
            }
        };
        let number = |text: &str| {
            let number = text.parse().ok().filter(|number| (1..=MOST_REPORTS).contains(number));
            number
                .ok_or_else(|| format!("`{text}` is no number of reports from 1 to {MOST_REPORTS}"))
        };
        let reports = match take {
            Take::Previous | Take::Change => Some(2),
            _ => reports.map(number).transpose()?,
        };
        Ok(Self { of: name.trim().to_owned(), take, reports })
    }
}

/// Where a term's values come from.
#[derive(Debug, Clone, Copy)]
enum Source {
    Report(Quantity),
    /// One of the card's own, by its place among them.
    Own(usize),
}

impl Source {
    /// What a name means where the card's own quantities are `own`.
    fn named(name: &str, own: &[&str]) -> Option<Self> {
        let reported = Quantity::ALL.iter().find(|quantity| quantity.name() == name);
        let its_own = || own.iter().position(|one| *one == name).map(Self::Own);
        reported.copied().map(Self::Report).or_else(its_own)
    }
}

/// Whether terms may have a name, the card's own quantities before them being `own`.
pub(crate) fn check_name(name: &str, own: &[&str]) -> Result<(), String> {
    if Source::named(name, own).is_some() {
        return Ok(());
    }
    let reported = Quantity::ALL.iter().map(|quantity| quantity.name());
    let known: Vec<&str> = own.iter().copied().chain(reported).collect();
    let name = name.escape_debug();
    Err(format!("`{name}` is no quantity that is known here; there are {}", known.join(", ")))
}

/// What the newest values come to, of a sum, a minimum or a maximum. They are in two stacks, the older of which has what each
/// value comes to with all that are newer in it: a report costs the same however long the window is, and as nothing is ever
/// subtracted, a sum of zeros is 0 whatever was there before them.
#[derive(Debug, Clone)]
struct Sliding {
    both: fn(f64, f64) -> f64,
    /// What nothing comes to.
    nothing: f64,
    /// `None`: all since the beginning, which are not kept.
    most: Option<usize>,
    older: Vec<f64>,
    newer: Vec<f64>,
    of_newer: f64,
    many: usize,
}

impl Sliding {
    fn new(take: Take, most: Option<usize>) -> Self {
        let (both, nothing): (fn(f64, f64) -> f64, f64) = match take {
            Take::Min | Take::Least => (f64::min, f64::INFINITY),
            Take::Max => (f64::max, f64::NEG_INFINITY),
            _ => (|a, b| a + b, 0.0),
        };
        Self { both, nothing, most, older: vec![], newer: vec![], of_newer: nothing, many: 0 }
    }

    /// With one value more.
    fn with(&mut self, value: f64) -> f64 {
        if self.most == Some(self.many) {
            self.forget_oldest();
        }
        if self.most.is_some() {
            self.newer.push(value);
        }
        self.many += 1;
        self.of_newer = (self.both)(self.of_newer, value);
        (self.both)(self.older.last().copied().unwrap_or(self.nothing), self.of_newer)
    }

    fn forget_oldest(&mut self) {
        if self.older.is_empty() {
            let mut come_to = self.nothing;
            for value in self.newer.drain(..).rev() {
                come_to = (self.both)(value, come_to);
                self.older.push(come_to);
            }
            self.of_newer = self.nothing;
        }
        self.older.pop();
        self.many -= 1;
    }
}

/// A term with what it remembers.
#[derive(Debug, Clone)]
struct Window {
    source: Source,
    take: Take,
    before: f64,
    values: Sliding,
}

impl Window {
    fn new(term: &Term, own: &[&str]) -> Self {
        // Cards are checked before: a name that is not known does not come here.
        let source = Source::named(&term.of, own).unwrap_or(Source::Report(Quantity::One));
        let values = Sliding::new(term.take, term.reports);
        Self { source, take: term.take, before: 0.0, values }
    }

    fn next(&mut self, quantities: &Quantities, own: &[f64]) -> f64 {
        let value = match self.source {
            Source::Report(quantity) => quantities.get(quantity),
            Source::Own(place) => own[place],
        };
        match self.take {
            Take::Now => value,
            Take::Previous => std::mem::replace(&mut self.before, value),
            Take::Change => value - std::mem::replace(&mut self.before, value),
            Take::Mean => {
                let sum = self.values.with(value);
                sum / self.values.many as f64
            }
            Take::Min => finite(self.values.with(if value == 0.0 { f64::INFINITY } else { value })),
            Take::Least | Take::Max | Take::Sum => self.values.with(value),
        }
    }
}

fn finite(value: f64) -> f64 {
    if value.is_finite() { value } else { 0.0 }
}

/// A feature of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Running {
    feature: Feature,
    of: Vec<Window>,
    over: Vec<Window>,
}

impl Running {
    /// `own` are the names of the card's own quantities before it.
    pub(crate) fn new(feature: &Feature, own: &[&str]) -> Self {
        let windows = |terms: &[Term]| terms.iter().map(|term| Window::new(term, own)).collect();
        Self {
            feature: feature.clone(),
            of: windows(&feature.of.0),
            over: windows(&feature.over.0),
        }
    }

    /// Its value with one report more, the card's own quantities before it being `own`.
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

/// A number to so many decimals.
pub(crate) fn rounded(value: f64, decimals: u32) -> f64 {
    let scale = 10_f64.powi(decimals as i32);
    (value * scale).round() / scale
}
