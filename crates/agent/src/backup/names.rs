//! The names of backups: `<namespace>.<name>.<YYYYMMDDThhmmssZ>.tar.age`. No store and no clock here.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// How each ends.
const END: &str = ".tar.age";
/// A time as it stands in a name; names sort by it.
const TIME: &str = "%Y%m%dT%H%M%SZ";

/// The backups of one ZitiController.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Series {
    /// Its namespace, which has no dot in it.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl Series {
    /// The file of the backup that was taken then.
    pub(super) fn file(&self, taken_at: Timestamp) -> String {
        let time = taken_at.to_zoned(TimeZone::UTC).strftime(TIME);
        format!("{}.{}.{time}{END}", self.namespace, self.name)
    }

    /// Whether a file is one of these. Another network's name may begin with this one's.
    pub(super) fn has(&self, file: &str) -> bool {
        let of_ours = || {
            let rest = file.strip_prefix(self.namespace.as_str())?;
            let rest = rest.strip_prefix('.')?.strip_prefix(self.name.as_str())?;
            let time = rest.strip_prefix('.')?.strip_suffix(END)?;
            Some(time.len() == "YYYYMMDDThhmmssZ".len() && is_time(time))
        };
        of_ours().unwrap_or(false)
    }

    /// Those of the files that are of this series, the newest first.
    pub(super) fn newest_first(&self, files: Vec<String>) -> Vec<String> {
        let files = files.into_iter().filter(|file| self.has(file));
        let mut files: Vec<_> = files.collect();
        files.sort_unstable_by(|one, other| other.cmp(one));
        files
    }
}

fn is_time(text: &str) -> bool {
    jiff::civil::DateTime::strptime(TIME, text).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series() -> Series {
        Series {
            namespace: "ns".to_owned(),
            name: "net".to_owned(),
        }
    }

    #[test]
    fn a_name_says_when_in_utc() {
        let at = "2030-02-03T04:05:06.789+02:00".parse().unwrap();
        assert_eq!(series().file(at), "ns.net.20300203T020506Z.tar.age");
        assert!(series().has("ns.net.20300203T020506Z.tar.age"));
    }

    #[test]
    fn nothing_of_others_is_taken_for_ones_own() {
        for other in [
            "ns.net.20300203T020506Z.tar.age.part",
            "ns.net.20300203T020506Z.tar",
            "ns.net.2.20300203T020506Z.tar.age",
            "ns.network.20300203T020506Z.tar.age",
            "other.ns.net.20300203T020506Z.tar.age",
            "ns2.net.20300203T020506Z.tar.age",
            "ns.net.20301303T020506Z.tar.age",
            "ns.net.2030203T0205060Z.tar.age",
            "ns.net.notes.tar.age",
            "ns.net.tar.age",
            "ns.net",
            "",
        ] {
            assert!(!series().has(other), "{other}");
        }
        let dotted = Series {
            name: "net.2".to_owned(),
            ..series()
        };
        assert!(dotted.has("ns.net.2.20300203T020506Z.tar.age"));
    }

    #[test]
    fn the_newest_come_first() {
        let file = |day: u8| format!("ns.net.203001{day:02}T000000Z.tar.age");
        let files = vec![file(2), "notes".to_owned(), file(10), file(1)];
        let sorted = series().newest_first(files);
        assert_eq!(sorted, [file(10), file(2), file(1)]);
    }
}
