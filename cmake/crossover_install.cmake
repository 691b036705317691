# The installed package: find_package(crossover) and pkg-config.
