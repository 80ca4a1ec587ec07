//! A second cluster beside the first, for what a hub does in another one. It is a whole Kubernetes of
//! its own, in a network namespace of its own, of the same programs and with the same images; a link
//! joins the two, and tests say what may pass it. Its directory lies in the first's, so that it ends
//! with it.

use anyhow::{Context, Result};

use super::layout::Layout;
use super::{Cluster, Passage, link, node};
use crate::progress::Step;

/// The second cluster. It outlives this value, and ends with the first.
#[derive(Debug, Clone)]
pub struct Second {
    cluster: Cluster,
}

impl Cluster {
    /// Starts the second cluster, or what of it does not run, and opens the link. It has the images
    /// that the first has now. Names of the first's Services, as `<service>.<namespace>.svc`, are
    /// known in it, where it has none of that name itself.
    ///
    /// # Errors
    /// As [`Cluster::up`].
    pub async fn start_second(&self, step: &Step) -> Result<Second> {
        let first = &self.layout;
        let (name, dir) = (format!("{}.second", first.name), first.second_dir());
        let cluster = Self::start(&name, &dir, Some(first.index), step)
            .await
            .context("starting the second cluster")?;
        step.say("link and images");
        link::create(first, &cluster.layout)?;
        node::copy_images(&first.first_node(), &cluster.layout.first_node())?;
        let second = Second { cluster };
        second.set(Passage::Open)?;
        Ok(second)
    }

    /// The second cluster, which was started earlier.
    ///
    /// # Errors
    /// When there is none.
    pub fn second(&self) -> Result<Second> {
        let dir = self.layout.second_dir();
        let layout = Layout::load(&dir)?.with_context(|| {
            format!("no second cluster was started beside {}", self.layout.name)
        })?;
        let cluster = Self::of(layout)?;
        Ok(Second { cluster })
    }
}

impl Second {
    /// The cluster itself.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Says what passes between the two from now on, also of connections that are there. The host
    /// reaches both all the while.
    pub fn set(&self, passage: Passage) -> Result<()> {
        link::set(&self.cluster.layout, passage)
    }
}
