//! Ends of the pairs of an origin: sites, or groups of sites at the nearest of which routes end.

use std::ops::Range;

use super::StepView;
use crate::compat::CompatRules;
use crate::handover::Link;

/// Ends of pairs that have one end in common, as indices of [`StepView::in_view`].
#[derive(Debug, Clone)]
pub(super) struct Ends {
    /// End of all pairs.
    pub(super) shared: usize,
    /// Other ends, one of each pair.
    pub(super) others: Range<usize>,
    /// Whether routes begin at the shared end; they end there otherwise.
    pub(super) outward: bool,
}

impl Ends {
    /// Ends of the pairs in order, each from the beginning of its routes.
    pub(super) fn pairs(&self) -> impl Iterator<Item = [usize; 2]> + use<> {
        let (shared, outward) = (self.shared, self.outward);
        let pair = move |other| if outward { [shared, other] } else { [other, shared] };
        self.others.clone().map(pair)
    }

    /// Place of the shared end in each pair.
    pub(super) fn place_of_shared(&self) -> usize {
        usize::from(!self.outward)
    }
}

/// Write the best link of several sites to each satellite into `merged`, in ascending order of satellites.
pub(super) fn merge<'l>(links: impl Iterator<Item = &'l [Link]>, merged: &mut Vec<Link>) {
    merged.clear();
    links.for_each(|links| merged.extend_from_slice(links));
    merged.sort_by(|a, b| {
        a.satellite.cmp(&b.satellite).then_with(|| a.delay_s.total_cmp(&b.delay_s))
    });
    merged.dedup_by_key(|link| link.satellite);
}

impl StepView<'_> {
    /// Sites of an end.
    pub(super) fn sites_of(&self, end: usize) -> impl Iterator<Item = usize> {
        let group = end.checked_sub(self.sky.sites().len()).map(|group| &self.groups[group]);
        let of_group = group.into_iter().flatten().map(|site| *site as usize);
        group.is_none().then_some(end).into_iter().chain(of_group)
    }

    /// Delay between an end and a satellite in seconds; of a group from its best site.
    pub(super) fn ground_delay_s(&self, end: usize, satellite: u32) -> f64 {
        let links = &self.in_view[end];
        if let Ok(place) = links.binary_search_by_key(&satellite, |link| link.satellite) {
            return links[place].delay_s;
        }
        let position = self.positions[satellite as usize];
        let compat = self.request.compat;
        let delay_s = |site: usize| compat.ground_delay_s(position, &self.sky.sites()[site]);
        self.sites_of(end).map(delay_s).fold(f64::INFINITY, f64::min)
    }
}
