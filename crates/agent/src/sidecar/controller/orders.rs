//! What this member may do to the network's database, as files of a directory: a Secret that the
//! operator fills and empties while the pod runs. So nothing of it is kept; it is read when it counts.
//!
//! | file | holds |
//! | --- | --- |
//! | `initialize` | the id of the one member that may initialize or restore |
//! | `username`, `password`, `name` | the first administrator |
//! | `restore`, `restore-id` | the path of a database, and what this restore is called |
//!
//! A file that is not there or empty says nothing. Only [`super`] uses this module.

use std::path::PathBuf;

use snafu::{OptionExt, Snafu};
use ziti::SecretString;

use crate::socket::controller::Administrator;

/// Which member this is, and where it finds what concerns it.
#[derive(Debug, Clone)]
pub struct Orders {
    /// The id of this member: the common name of the controller's certificate.
    pub member: String,
    /// The directory of the orders, which need not exist.
    pub bootstrap: PathBuf,
    /// The data directory of the controller, at the same path as the controller has it; writable.
    pub data: PathBuf,
}

/// A database to restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Restore {
    /// Where it is, for the sidecar.
    pub(super) file: PathBuf,
    /// What tells this restore from every other.
    pub(super) id: String,
}

/// An order that lacks something.
#[derive(Debug, Snafu)]
#[snafu(display(
    "the order to {act} lacks the file {file} in {}: it is a key of the Secret that is mounted there",
    directory.display()
))]
pub(super) struct Incomplete {
    act: &'static str,
    file: &'static str,
    directory: PathBuf,
}

impl Orders {
    /// Whether this is the member that may initialize or restore.
    pub(super) fn is_appointed(&self) -> bool {
        self.read("initialize").is_some_and(|id| id == self.member)
    }

    /// The administrator to make.
    pub(super) fn administrator(&self) -> Result<Administrator, Incomplete> {
        let act = "initialize";
        Ok(Administrator {
            username: self.required(act, "username")?,
            password: SecretString::from(self.required(act, "password")?),
            name: self.required(act, "name")?,
        })
    }

    /// The database to restore, if there is an order to.
    pub(super) fn restore(&self) -> Result<Option<Restore>, Incomplete> {
        let Some(file) = self.read("restore") else {
            return Ok(None);
        };
        let id = self.required("restore", "restore-id")?;
        let file = PathBuf::from(file);
        Ok(Some(Restore { file, id }))
    }

    fn required(&self, act: &'static str, file: &'static str) -> Result<String, Incomplete> {
        let directory = &self.bootstrap;
        self.read(file).context(IncompleteSnafu {
            act,
            file,
            directory,
        })
    }

    /// Editors end a file with a line break; it is no part of a password.
    fn read(&self, name: &str) -> Option<String> {
        let text = std::fs::read_to_string(self.bootstrap.join(name)).ok()?;
        let text = text.trim_end_matches(['\r', '\n']);
        (!text.is_empty()).then(|| text.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use ziti::ExposeSecret;

    use super::*;

    fn orders(files: &[(&str, &str)]) -> (tempfile::TempDir, Orders) {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let orders = Orders {
            member: "c-0".to_owned(),
            bootstrap: dir.path().to_path_buf(),
            data: PathBuf::new(),
        };
        (dir, orders)
    }

    #[test]
    fn only_the_member_that_is_named_is_appointed() {
        let rows = [
            (Some("c-0"), true),
            (Some("c-0\n"), true),
            (Some("c-01"), false),
            (Some("c-1"), false),
            (Some(""), false),
            (None, false),
        ];
        for (text, expected) in rows {
            let files: Vec<_> = text.map(|text| ("initialize", text)).into_iter().collect();
            let (_dir, orders) = orders(&files);
            assert_eq!(orders.is_appointed(), expected, "{text:?}");
        }
    }

    #[test]
    fn an_order_is_whole_or_says_what_it_lacks() {
        let (dir, orders) = orders(&[("username", "admin"), ("password", "pa ss\n")]);
        let error = orders.administrator().unwrap_err().to_string();
        let expected = format!("initialize lacks the file name in {}", dir.path().display());
        assert!(error.contains(&expected), "{error}");
        std::fs::write(dir.path().join("name"), "Default").unwrap();
        let administrator = orders.administrator().unwrap();
        assert_eq!(administrator.password.expose_secret(), "pa ss");

        assert_eq!(orders.restore().unwrap(), None);
        std::fs::write(dir.path().join("restore"), "/backup/a.db").unwrap();
        assert!(orders.restore().is_err());
        std::fs::write(dir.path().join("restore-id"), "7").unwrap();
        assert_eq!(orders.restore().unwrap().unwrap().id, "7");
    }
}
