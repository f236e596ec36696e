from benchmarks.pages.build import main

main()
