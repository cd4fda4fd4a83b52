"""What tests share: servers, proxies, mail files, and waiting."""
