//! What a policy sees of one connection.

use skyhop_cc::Report;

use crate::card::Card;
use crate::feature::Running;
use crate::quantity::Quantities;

/// The features of the newest reports of a connection, oldest first.
#[derive(Debug, Clone)]
pub struct Observer {
    features: Vec<Running>,
    before: Option<Report>,
    seen: Vec<f32>,
}

impl Observer {
    /// For a connection that has not reported yet.
    pub fn new(card: &Card) -> Self {
        let observation = &card.observation;
        Self {
            features: observation.features.iter().map(Running::new).collect(),
            before: None,
            seen: vec![observation.filler; card.inputs()],
        }
    }

    /// What is seen with one report more, `output` being what the network said last.
    pub fn see(&mut self, report: &Report, output: f64) -> &[f32] {
        let quantities = Quantities::of(report, self.before.as_ref(), output);
        self.before = Some(*report);
        let width = self.features.len();
        self.seen.rotate_left(width);
        let newest = self.seen.len() - width;
        for (place, feature) in self.seen[newest..].iter_mut().zip(&mut self.features) {
            *place = feature.next(&quantities);
        }
        &self.seen
    }

    /// What was seen last.
    pub fn seen(&self) -> &[f32] {
        &self.seen
    }
}
