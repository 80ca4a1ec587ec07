//! A bounded number of places, of which no address can take all. Only [`super::serve`] uses it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// So many for all together, and so many for each address.
#[derive(Debug)]
pub(super) struct Places {
    all: usize,
    each: usize,
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A place; it is free again when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    address: IpAddr,
}

impl Places {
    pub(super) fn new(all: usize, each: usize) -> Arc<Self> {
        let taken = Mutex::default();
        Arc::new(Self { all, each, taken })
    }

    /// A place for this address; none where there is none left for it.
    pub(super) fn take(self: &Arc<Self>, address: IpAddr) -> Option<Place> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let all: usize = taken.values().sum();
        let own = taken.get(&address).copied().unwrap_or_default();
        if all >= self.all || own >= self.each {
            return None;
        }
        taken.insert(address, own + 1);
        let places = Arc::clone(self);
        Some(Place { places, address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let taken = &self.places.taken;
        let mut taken = taken.lock().unwrap_or_else(PoisonError::into_inner);
        match taken.get_mut(&self.address) {
            Some(own) if *own > 1 => *own -= 1,
            _ => {
                taken.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_takes_the_places_of_another() {
        let address = |last: u8| IpAddr::from([192, 0, 2, last]);
        let places = Places::new(3, 2);
        let first = places.take(address(1)).unwrap();
        let _second = places.take(address(1)).unwrap();
        assert!(places.take(address(1)).is_none(), "it has its two");
        let third = places.take(address(2)).unwrap();
        assert!(places.take(address(3)).is_none(), "all three are taken");
        drop(third);
        let _third = places.take(address(3)).unwrap();
        drop(first);
        let _first = places.take(address(1)).unwrap();
        assert_eq!(
            places.taken.lock().unwrap().len(),
            2,
            "nothing is kept of who left"
        );
    }
}
