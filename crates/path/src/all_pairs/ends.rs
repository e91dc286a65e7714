//! Ends of the pairs of an origin: sites, or groups of sites at the nearest of which routes end.

use std::ops::Range;

use super::StepView;
use crate::handover::Link;

/// Place where routes from many sites end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Site with this index, whose satellite the handover policy chooses as well.
    Site(u32),
    /// Nearest of the sites with these indices; each uses all satellites in its view at once, as gateways do.
    Nearest(Vec<u32>),
}

impl Destination {
    /// Indices of the sites.
    pub(super) fn sites(&self) -> &[u32] {
        match self {
            Self::Site(site) => std::slice::from_ref(site),
            Self::Nearest(sites) => sites,
        }
    }
}

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
    /// Whether an end is a group of sites.
    pub(super) fn is_group(&self, end: usize) -> bool {
        end >= self.sky.sites().len()
    }
}
